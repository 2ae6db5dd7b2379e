"""The ServerApp: federated averaging of adapters, and a test on texts that no node has."""

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from fedcomp.flower import CompressedStrategy
from lora_example.task import load_model, load_texts, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds, print the loss, and save the adapter for peft."""
    model, tokenizer = load_model(context.run_config["model"])
    strategy = FedAvg(fraction_evaluate=0.0)
    if context.run_config["compress"]:
        strategy = CompressedStrategy(strategy)  # <-- fedcomp
    first = ArrayRecord(get_peft_model_state_dict(model))
    result = strategy.start(grid, first, num_rounds=context.run_config["num-server-rounds"])
    set_peft_model_state_dict(model, result.arrays.to_torch_state_dict())
    print(f"loss {test(model, tokenizer, load_texts(-1)):.3f}")
    if folder := context.run_config["save-to"]:
        model.save_pretrained(folder)  # for PeftModel.from_pretrained(base, folder)
