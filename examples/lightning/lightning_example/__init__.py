"""An autoencoder under the Trainer of PyTorch Lightning."""
