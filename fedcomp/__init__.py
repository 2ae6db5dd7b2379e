"""fedcomp: federated learning that is cheap to send.

Examples:
    >>> import numpy as np
    >>> import fedcomp
    >>> compressor = fedcomp.topk(density=0.01, values="fp16")
    >>> update = np.random.default_rng(0).standard_normal(100_000, dtype=np.float32)
    >>> state = compressor.init(update.size)
    >>> body, state = compressor.encode(update, state)
    >>> compressor.decode(body, n=update.size).shape
    (100000,)
"""

from typing import TYPE_CHECKING

from fedcomp import methods
from fedcomp.compressor import Compressor as Compressor
from fedcomp.errors import FedcompError as FedcompError
from fedcomp.methods import *
from fedcomp.wire import register_codec as register_codec

__version__ = "0.2.0"

if not TYPE_CHECKING:  # mypy cannot add lists of names; without `__all__` it exports what is imported by * or by `as`
    __all__ = ["Compressor", "FedcompError", "register_codec", *methods.__all__]
