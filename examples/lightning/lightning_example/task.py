"""The module, its data and its trainer."""

import logging
from functools import cache

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRAINING = 1000
"""The digits that the nodes share; the remaining 797 are the server's."""

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


class LitAutoEncoder(lightning.LightningModule):
    """An autoencoder of images of 8 x 8 pixels, with twelve numbers in the middle."""

    def __init__(self, lr: float):
        super().__init__()
        self.lr = lr
        self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12))
        self.decoder = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64))

    def training_step(self, batch, batch_index):
        """Return the reconstruction loss."""
        loss = self.loss(*batch)
        self.log("train_loss", loss)
        return loss

    def loss(self, x):
        """Return the mean squared error of the pixels."""
        return nn.functional.mse_loss(self.decoder(self.encoder(x)), x)

    def configure_optimizers(self):
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)


@cache
def digits():
    """Return all images, (n, 64)."""
    return torch.tensor(load_digits().data / 16, dtype=torch.float32)


def load_data(part: slice) -> DataLoader:
    """Return a part of the digits, 20 at a time."""
    return DataLoader(TensorDataset(digits()[part]), batch_size=20, shuffle=True)


def trainer(max_epochs: int) -> lightning.Trainer:
    """Return a trainer that prints and writes nothing."""
    return lightning.Trainer(
        max_epochs=max_epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
