"""The ServerApp: federated averaging of clipped updates with noise, and a test on digits that no node has."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg

from differential_privacy_example.task import TRAINING, Net, load_data, test
from fedcomp.flower import CompressedStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, and print the accuracy."""
    model, config = Net(), context.run_config
    strategy = DifferentialPrivacyClientSideFixedClipping(
        FedAvg(fraction_evaluate=0.0, min_train_nodes=config["num-nodes"], min_available_nodes=config["num-nodes"]),
        noise_multiplier=config["noise-multiplier"],
        clipping_norm=config["clipping-norm"],
        num_sampled_clients=config["num-nodes"],
    )
    if config["compress"]:
        strategy = CompressedStrategy(strategy)  # <-- fedcomp, around the strategy that adds noise
    result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=config["num-server-rounds"])
    model.load_state_dict(result.arrays.to_torch_state_dict())
    print(f"accuracy {test(model, load_data(slice(TRAINING, None))):.1%}")
