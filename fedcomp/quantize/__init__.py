"""Vectors to symbols, with loss: one idea a file."""
