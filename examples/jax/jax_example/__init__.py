"""A network of two layers in JAX."""
