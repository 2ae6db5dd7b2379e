"""The ServerApp: SCAFFOLD, and a test on digits that no node has."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

import fedcomp
from fedcomp.flower import CompressedStrategy
from scaffold_example.strategy import Scaffold
from scaffold_example.task import Net, load_test, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, and print the accuracy."""
    model, strategy = Net(), Scaffold()
    if context.run_config["compress"]:
        strategy = CompressedStrategy(strategy, records={"control": fedcomp.stc(density=0.1)})  # <-- fedcomp
    result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=context.run_config["num-server-rounds"])
    model.load_state_dict(result.arrays.to_torch_state_dict())
    print(f"accuracy {test(model, load_test()):.1%}")
