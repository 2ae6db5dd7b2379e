"""NumPy's archive format, for users' own datasets: arrays ``x`` and ``y``, and one for each column of the card."""

import io
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np

from fedcomp.data.card import Card
from fedcomp.data.dataset import Arrays, DataError
from fedcomp.data.owners import numbered


def read_split(card: Card, contents: Mapping[str, bytes]) -> Arrays:
    """Return the arrays of the archive, with unchecked shapes and dtypes; nothing is unpickled.

    Names in a column become numbers; other arrays of the archive are ignored.  Raises `DataError` for anything but such an
    archive.
    """
    ((name, data),) = contents.items()
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = sorted(archive.namelist())
        needed = [f"{key}.npy" for key in ("x", "y", *card.groups)]
        if not set(needed) <= set(members):
            raise DataError(f"{name}: an archive of {', '.join(members) or 'nothing'}; it needs {', '.join(needed)}")
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            groups = {key: numbered(arrays[key], f"{name}: {key}") for key in card.groups}
            return Arrays(arrays["x"], arrays["y"], groups)
    except DataError:
        raise
    except (OSError, ValueError, EOFError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{name}: not a readable .npz ({error}); plain arrays x and y are needed") from None
