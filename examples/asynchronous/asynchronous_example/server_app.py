"""The ServerApp: federated averaging, compressed without rounds, and a test on digits that no node has."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from asynchronous_example.task import TRAINING, Net, load_data, test
from fedcomp.flower import AsyncMode, CompressedStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds or versions, and print the accuracy."""
    model = Net()
    strategy, rounds = FedAvg(fraction_evaluate=0.0), context.run_config["num-server-rounds"]
    if context.run_config["compress"]:
        strategy = CompressedStrategy(strategy, mode=AsyncMode(buffer=2, staleness=30))  # <-- fedcomp
        rounds = context.run_config["num-versions"]
    result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=rounds)
    model.load_state_dict(result.arrays.to_torch_state_dict())
    print(f"accuracy {test(model, load_data(slice(TRAINING, None))):.1%}")
