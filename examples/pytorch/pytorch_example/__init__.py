"""A convolutional network in PyTorch."""
