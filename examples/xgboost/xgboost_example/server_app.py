"""The ServerApp: bagging of the nodes' trees, and a test on samples that no node has."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedXgbBagging

from fedcomp.flower import CompressedStrategy
from xgboost_example.task import TRAINING, load_data, load_model, to_bytes, to_record

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, and print the accuracy."""
    strategy = FedXgbBagging(fraction_evaluate=0.0)
    if context.run_config["compress"]:
        strategy = CompressedStrategy(strategy)  # <-- fedcomp, which sends trees as they are
    result = strategy.start(grid, to_record(b""), num_rounds=context.run_config["num-server-rounds"])
    data = load_data(slice(TRAINING, None))
    correct = (load_model(to_bytes(result.arrays)).predict(data) > 0.5) == data.get_label()
    print(f"accuracy {correct.mean():.1%}")
