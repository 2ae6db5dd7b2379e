"""Selection and memory arithmetic on torch devices, with the results of the numpy path to the bit."""

from fedcomp.backends import arithmetic, torch_backend

__all__ = ["arithmetic", "torch_backend"]
