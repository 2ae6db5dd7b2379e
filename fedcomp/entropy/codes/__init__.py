"""Codes of positions, values and small symbols; bodies are built from them."""
