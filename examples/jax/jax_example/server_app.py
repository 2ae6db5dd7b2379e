"""The ServerApp: federated averaging, and a test on digits that no node has."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedcomp.flower import CompressedStrategy
from jax_example.task import TRAINING, first_params, load_data, test, to_params, to_record

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, and print the accuracy."""
    strategy = FedAvg(fraction_evaluate=0.0)
    if context.run_config["compress"]:
        strategy = CompressedStrategy(strategy)  # <-- fedcomp
    rounds = context.run_config["num-server-rounds"]
    result = strategy.start(grid, to_record(first_params()), num_rounds=rounds)
    print(f"accuracy {test(to_params(result.arrays), *load_data(slice(TRAINING, None))):.1%}")
