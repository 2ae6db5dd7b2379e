"""Selection and residual arithmetic for numpy vectors and for torch tensors on any device."""

from fedcomp.backends import arithmetic, torch_backend

__all__ = ["arithmetic", "torch_backend"]
