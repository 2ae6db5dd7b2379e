"""The ServerApp: federated averaging of adapters, and a test on texts that no node has."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedcomp
from fedcomp.flower import CompressedStrategy
from lora_example.task import get_adapter, load_model, load_texts, set_adapter, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, save the adapter for peft, and print the loss on made-up sentences."""
    config = context.run_config
    model, tokenizer = load_model(config)
    strategy = FedAvg(fraction_train=config["strategy.fraction-train"], fraction_evaluate=0.0)
    if config["compress"]:
        link = fedcomp.eden(bits=2)  # adapters trained by AdamW bear less noise than auto() adds
        strategy = CompressedStrategy(strategy, uplink=link, downlink=link, shared_start=True)  # <-- fedcomp
    result = strategy.start(grid, get_adapter(model), num_rounds=config["num-server-rounds"])
    set_adapter(model, result.arrays)
    if folder := config["save-to"]:
        model.save_pretrained(folder)  # for PeftModel.from_pretrained(base, folder)
    if not config["static.dataset.name"]:
        print(f"loss {test(model, tokenizer, load_texts(config, -1), config['train.seq-length']):.3f}")
