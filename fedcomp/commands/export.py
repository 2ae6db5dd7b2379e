"""Write the model of a run as safetensors, which the libraries of Hugging Face and many others load.

fedcomp export runs/digits-001/model.npz model.safetensors
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save

from fedcomp.commands import new_parser
from fedcomp.core import write_atomically


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file.  Return 0, or 1 after one sentence about what is wrong."""
    parser = new_parser("fedcomp export", __doc__)
    parser.add_argument("model", type=Path, metavar="MODEL.npz", help="named arrays, as a run's folder holds them")
    parser.add_argument("out", type=Path, metavar="OUT.safetensors")
    options = parser.parse_args(arguments)
    try:
        with options.model.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name], order="C") for name in archive.files}
        data = save(arrays, metadata={"format": "pt"})  # as transformers expects it
        write_atomically(options.out, lambda file: file.write(data), mode=0o644)
    except OSError as error:
        print(f"fedcomp: export: {error.filename or options.model}: {error.strerror or error}", file=sys.stderr)
        return 1
    except (BadZipFile, EOFError, SafetensorError, ValueError) as error:
        print(f"fedcomp: export: {options.model} is no .npz file of numbers: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {len(arrays)} tensors, {len(data)} bytes")
    return 0
