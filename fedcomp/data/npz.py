"""NumPy's own archive, for a dataset of one's own: a file a split, with the arrays ``x`` and ``y``."""

import io
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.data.card import Card
from fedcomp.data.dataset import DataError


def read_split(_card: Card, contents: Mapping[str, bytes]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the arrays ``x`` and ``y``, whose shapes and dtypes are the caller's to check; nothing is unpickled.

    Raises `DataError` for what is no such archive.
    """
    ((name, data),) = contents.items()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = sorted(archive.namelist())
        if members != ["x.npy", "y.npy"]:
            raise DataError(f"{name}: an archive of {', '.join(members) or 'nothing'}; x.npy and y.npy are needed")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return arrays["x"], arrays["y"]
    except DataError:
        raise
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{name}: not a readable .npz ({error}); plain arrays x and y are needed") from None
