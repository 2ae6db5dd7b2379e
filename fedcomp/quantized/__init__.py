"""Quantized vectors: produced by quantizers, serialised by entropy codes, independent of both."""
