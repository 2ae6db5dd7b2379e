"""Selection and residual arithmetic for numpy vectors and for torch tensors on any device."""
