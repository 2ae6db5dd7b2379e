"""The model and its data."""

from functools import cache

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

TRAINING = 1000
"""The digits that the nodes share; the remaining 797 are the server's."""


@cache
def digits():
    """Return all images, (n, 64), and their classes."""
    x, y = load_digits(return_X_y=True)
    return x / 16, y


def load_data(part: slice):
    """Return a part of the digits."""
    x, y = digits()
    return x[part], y[part]


def first_parameters() -> list[np.ndarray]:
    """Return coefficients and intercepts of zeros, with the shapes that training gives them."""
    return [np.zeros((10, 64)), np.zeros(10)]


def with_parameters(parameters: list[np.ndarray], epochs: int = 1) -> LogisticRegression:
    """Return a model with these coefficients and intercepts, whose `fit` goes on from them."""
    model = LogisticRegression(max_iter=epochs, warm_start=True)
    model.classes_ = np.arange(10)
    model.coef_, model.intercept_ = (array.copy() for array in parameters)
    return model
