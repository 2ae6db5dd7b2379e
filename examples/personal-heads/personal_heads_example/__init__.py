"""Personal heads: a shared body in PyTorch, and a last layer that stays on each node."""
