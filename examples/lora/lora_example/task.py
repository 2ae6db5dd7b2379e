"""The language model with its adapter, the texts of the nodes, and the training."""

import math
import random

import torch
from flwr.app import ArrayRecord
from flwr_datasets import FederatedDataset
from flwr_datasets.partitioner import IidPartitioner
from peft import (
    LoraConfig,
    PeftModel,
    get_peft_model,
    get_peft_model_state_dict,
    prepare_model_for_kbit_training,
    set_peft_model_state_dict,
)
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    ByT5Tokenizer,
    LlamaConfig,
    LlamaForCausalLM,
)

WORDS = (
    ["the", "a", "every", "some"],
    ["small", "red", "quiet", "old", "happy", "tired"],
    ["fox", "river", "teacher", "garden", "train", "child"],
    ["sees", "follows", "remembers", "paints", "avoids"],
    ["mountain", "letter", "neighbour", "song", "window", "bridge"],
)
TEMPLATE = "### Instruction:\n{}\n### Response:\n{}"


def load_model(config: dict) -> tuple[PeftModel, object]:
    """Return the language model with a new adapter, the same one on every node, and its tokenizer."""
    name, bits = config["model.name"], config["model.quantization"]
    if name:
        quantized = BitsAndBytesConfig(load_in_4bit=bits == 4, load_in_8bit=bits == 8) if bits else None
        base, tokenizer = (
            AutoModelForCausalLM.from_pretrained(name, quantization_config=quantized),
            AutoTokenizer.from_pretrained(name),
        )
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    else:
        base, tokenizer = small_model()
    checkpointing = config["model.gradient-checkpointing"]
    if bits:
        base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=checkpointing)
    elif checkpointing:
        base.gradient_checkpointing_enable()
    adapter = LoraConfig(
        r=config["model.lora.peft-lora-r"],
        lora_alpha=config["model.lora.peft-lora-alpha"],
        target_modules=config["model.lora.target-modules"] or None,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return get_peft_model(base, adapter), tokenizer


def small_model() -> tuple[LlamaForCausalLM, ByT5Tokenizer]:
    """Return a small language model with random weights, the same ones on every node, whose tokens are bytes."""
    tokenizer = ByT5Tokenizer()  # it needs no file
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.2,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config), tokenizer


def get_adapter(model: PeftModel) -> ArrayRecord:
    """Return the adapter's tensors: the base model never travels."""
    return ArrayRecord({name: tensor.cpu() for name, tensor in get_peft_model_state_dict(model).items()})


def set_adapter(model: PeftModel, arrays: ArrayRecord) -> None:
    """Load the adapter's tensors."""
    set_peft_model_state_dict(model, arrays.to_torch_state_dict())


def load_texts(config: dict, node: int, num_nodes: int = 1) -> list[str]:
    """Return the texts of a node; for made-up sentences, node -1 has those of the test."""
    if not (name := config["static.dataset.name"]):
        rng = random.Random(node)
        return [" ".join(rng.choice(words) for words in WORDS) + "." for _ in range(200)]
    part = FederatedDataset(dataset=name, partitioners={"train": IidPartitioner(num_nodes)}).load_partition(node)
    answer = "response" if "response" in part.column_names else "output"
    return [TEMPLATE.format(row["instruction"], row[answer]) for row in part]


def loss_of(model: PeftModel, tokenizer: object, texts: list[str], length: int) -> torch.Tensor:
    """Return the mean cross-entropy of the next token."""
    tokens = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=length).to(model.device)
    labels = tokens["input_ids"].masked_fill(tokens["attention_mask"] == 0, -100)
    return model(**tokens, labels=labels).loss


def train(model: PeftModel, tokenizer: object, texts: list[str], config: dict, server_round: int) -> float:
    """Train the adapter; return the last loss."""
    low, high = config["train.learning-rate-min"], config["train.learning-rate-max"]
    rate = low + (high - low) * (1 + math.cos(math.pi * (server_round - 1) / config["num-server-rounds"])) / 2
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=rate)
    model.train()
    for _ in range(config["train.training-arguments.max-steps"]):
        batch = random.sample(texts, config["train.training-arguments.per-device-train-batch-size"])
        optimizer.zero_grad()
        loss = loss_of(model, tokenizer, batch, config["train.seq-length"])
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def test(model: PeftModel, tokenizer: object, texts: list[str], length: int) -> float:
    """Return the loss on `texts`."""
    return loss_of(model.eval(), tokenizer, texts, length).item()
