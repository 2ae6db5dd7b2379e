"""The language model with its adapter, the texts of the nodes, and the training."""

import random

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

WORDS = (
    ["the", "a", "every", "some"],
    ["small", "red", "quiet", "old", "happy", "tired"],
    ["fox", "river", "teacher", "garden", "train", "child"],
    ["sees", "follows", "remembers", "paints", "avoids"],
    ["mountain", "letter", "neighbour", "song", "window", "bridge"],
)


def load_model(name: str) -> tuple[PeftModel, object]:
    """Return a language model with a new adapter, and its tokenizer; a small random one for the empty name."""
    if name:
        base, tokenizer = AutoModelForCausalLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    else:
        tokenizer = ByT5Tokenizer()  # bytes are its tokens, so it needs no file
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
            torch.manual_seed(0)  # the same frozen weights on every node
            base = LlamaForCausalLM(config)
    adapter = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(base, adapter), tokenizer


def load_texts(node: int, count: int = 200) -> list[str]:
    """Return made-up sentences; each node has others."""
    rng = random.Random(node)
    return [" ".join(rng.choice(words) for words in WORDS) + "." for _ in range(count)]


def loss_of(model: PeftModel, tokenizer: object, texts: list[str]) -> torch.Tensor:
    """Return the mean cross-entropy of the next token."""
    tokens = tokenizer(texts, return_tensors="pt", padding=True)
    labels = tokens["input_ids"].masked_fill(tokens["attention_mask"] == 0, -100)
    return model(**tokens, labels=labels).loss


def train(model: PeftModel, tokenizer: object, texts: list[str], steps: int, lr: float, batch_size: int) -> float:
    """Train the adapter; return the last loss."""
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=lr)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, tokenizer, random.sample(texts, batch_size))
        loss.backward()
        optimizer.step()
    return loss.item()


@torch.no_grad()
def test(model: PeftModel, tokenizer: object, texts: list[str]) -> float:
    """Return the loss on `texts`."""
    return loss_of(model.eval(), tokenizer, texts).item()
