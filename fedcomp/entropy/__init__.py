"""Quantized vectors to bytes and back, without loss."""
