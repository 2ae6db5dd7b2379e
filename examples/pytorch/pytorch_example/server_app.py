"""The ServerApp: federated averaging, and a test on digits that no node has."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import CompressedStrategy
from pytorch_example.task import TRAINING, Net, load_data, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, and print the accuracy."""
    model = Net()
    strategy = FedAvg(fraction_evaluate=0.0)
    if context.run_config["compress"]:
        strategy = CompressedStrategy(strategy)  # <-- fedcomp
    result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=context.run_config["num-server-rounds"])
    model.load_state_dict(result.arrays.to_torch_state_dict())
    print(f"accuracy {test(model, load_data(slice(TRAINING, None))):.1%}")
