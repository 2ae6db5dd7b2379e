"""Writes a new golden file, once, for a person to review.  It never overwrites one, and no test calls it.

python -m tests.golden "mine(density=0.02)"        # the golden file of a method
python -m tests.golden new.frame --bytes FILE      # a frame, body or server message that you have made, under a new name
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

import fedcomp
from fedcomp.core import parse_call
from tests.golden.method_file import FOLDER, MethodFile, N, digest, encode

SUFFIXES = (".body", ".frame", ".message")
REVIEW = """Review before you commit:
1. Decode it by hand, or with a slow decoder of its own as in tests/reference.py, and compare the vector.
2. Compare its size with the bits per entry that the paper states, and each field with fedcomp/wire/FORMAT.md.
3. Commit it with the method.  From then on its bytes are a promise: no one replaces the file."""


def write_method(text: str, folder: Path) -> Path:
    """Write the golden file of the method `text` and return its path.  Raises `FileExistsError` if there is one."""
    body = encode(text)
    vector = fedcomp.parse(text).decode(body, N)
    if not vector.any():
        raise ValueError(f"{text} decodes to zeros alone, which pins nothing; choose other settings")
    path = folder / f"{parse_call(text)[0]}.golden"
    with path.open("x", encoding="utf-8") as file:
        file.write(str(MethodFile(text, digest(text, body), body)))
    print(f"{text}: {len(body)} bytes for {N} entries, {8 * len(body) / N:.4f} bits per entry")
    print(f"vector: {vector[:4].tolist()} ... of {len(set(vector.tolist()))} values, sha256 {digest(text, body)}")
    return path


def write_bytes(name: str, source: Path, folder: Path) -> Path:
    """Copy `source` to the golden file `name` and return its path.  Raises `FileExistsError` if there is one."""
    if Path(name).name != name or Path(name).suffix not in SUFFIXES:
        raise ValueError(f"{name!r} is no name of a golden file; it ends in {', '.join(SUFFIXES)}")
    path = folder / name
    data = source.read_bytes()
    with path.open("xb") as file:
        file.write(data)
    print(f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")
    print(f"`fedcomp show {path}` describes frames and server messages; add the file to tests/golden/README.md")
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; return 0, or 1 if there is one already."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description="Write a new golden file for review.")
    parser.add_argument(
        "name", metavar="METHOD|FILE", help="a method's text, or with --bytes the name of the golden file"
    )
    parser.add_argument("--bytes", type=Path, metavar="FILE", help="the bytes of a new frame, body or server message")
    parser.add_argument("--folder", type=Path, help="where to write it, if not into tests/golden")
    options = parser.parse_args(arguments)
    try:
        if options.bytes:
            path = write_bytes(options.name, options.bytes, options.folder or FOLDER.parent)
        else:
            path = write_method(options.name, options.folder or FOLDER)
    except (ValueError, OSError) as error:
        print(f"tests.golden: {error}", file=sys.stderr)
        return 1
    print(f"wrote {path}\n{REVIEW}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
