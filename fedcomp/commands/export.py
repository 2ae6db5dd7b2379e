"""Write the model of a run as safetensors, which the libraries of Hugging Face and many others load.

    fedcomp export runs/digits-001/model.npz model.safetensors

The packed weights of an inference.npz are written unpacked.
"""

import sys
from collections.abc import Collection, Sequence

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save

from fedcomp.commands import new_parser, path_of
from fedcomp.core import DAMAGE, write_atomically


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file.  Return 0, or 1 after one sentence about what is wrong."""
    parser = new_parser("fedcomp export", __doc__)
    parser.add_argument("model", type=path_of, metavar="MODEL.npz", help="named arrays, as a run's folder holds them")
    parser.add_argument("out", type=path_of, metavar="OUT.safetensors")
    options = parser.parse_args(arguments)
    try:
        if options.out.exists() and options.out.samefile(options.model):
            print(f"fedcomp: export: {options.out} is {options.model} itself; another OUT is needed", file=sys.stderr)
            return 1
        with options.model.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name], order="C") for name in archive.files}
        if _is_packed(arrays):
            from fedcomp.training import unpack  # torch, which no other model needs

            arrays = {name: weight.numpy() for name, weight in unpack(arrays).items()}
        data = save(arrays, metadata={"format": "pt"})  # as transformers expects it
        write_atomically(options.out, lambda file: file.write(data), mode=0o644)
    except OSError as error:
        print(f"fedcomp: export: {error.filename or options.model}: {error.strerror or error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"fedcomp: export: {error}", file=sys.stderr)
        return 1
    except (*DAMAGE, SafetensorError) as error:
        print(f"fedcomp: export: {options.model} is no .npz file of numbers: {error}", file=sys.stderr)
        return 1
    print(f"{options.out}: {len(arrays)} tensors, {len(data)} bytes")
    return 0


def _is_packed(names: Collection[str]) -> bool:
    """Return whether these are the names of what `fedcomp.training.pack` returned."""
    tensors = {name.removesuffix("/shape") for name in names if name.endswith("/shape")}
    return any(f"{tensor}/{part}" in names for tensor in tensors for part in ("codes", "nonzero"))
