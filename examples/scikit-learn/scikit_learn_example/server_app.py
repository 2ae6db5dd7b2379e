"""The ServerApp: federated averaging, and a test on digits that no node has."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import CompressedStrategy
from scikit_learn_example.task import TRAINING, first_parameters, load_data, with_parameters

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, and print the accuracy."""
    strategy = FedAvg(fraction_evaluate=0.0)
    if context.run_config["compress"]:
        strategy = CompressedStrategy(strategy)  # <-- fedcomp
    first = ArrayRecord(first_parameters())
    result = strategy.start(grid, first, num_rounds=context.run_config["num-server-rounds"])
    model = with_parameters(result.arrays.to_numpy_ndarrays())
    print(f"accuracy {model.score(*load_data(slice(TRAINING, None))):.1%}")
