"""A ServerApp that times its rounds."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

import fedcomp
from fedcomp.flower import CompressedStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run FedAvg over all nodes, wrapped or not, and write down when each round ends."""
    config = context.run_config
    link, out = str(config["link"]), Path(str(config["out"]))
    size = int(config["entries"]) // int(config["tensors"])
    rng = np.random.default_rng(0)
    model = {f"layer.{i}": Array(rng.standard_normal(size, np.float32)) for i in range(int(config["tensors"]))}
    strategy: Strategy = FedAvg(fraction_train=1.0, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    if link:
        strategy = CompressedStrategy(strategy, uplink=fedcomp.parse(link), downlink=fedcomp.parse(link))

    def note(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        with out.open("a") as file:
            file.write(f"{time.monotonic()}\n")
        return None

    strategy.start(grid, ArrayRecord(model), num_rounds=int(config["rounds"]), timeout=600, evaluate_fn=note)
