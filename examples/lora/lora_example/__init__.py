"""LoRA on a small language model with transformers and peft."""
