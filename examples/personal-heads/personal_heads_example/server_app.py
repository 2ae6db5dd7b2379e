"""The ServerApp: federated averaging of bodies, and the nodes' mean accuracy with their own heads."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import CompressedStrategy
from personal_heads_example.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, and print the accuracy."""
    strategy, rounds = FedAvg(), context.run_config["num-server-rounds"]
    if context.run_config["compress"]:
        strategy = CompressedStrategy(strategy, local=["head.*"])  # <-- fedcomp
    result = strategy.start(grid, ArrayRecord(Net().state_dict()), num_rounds=rounds)
    print(f"accuracy {result.evaluate_metrics_clientapp[rounds]['accuracy']:.1%}")
