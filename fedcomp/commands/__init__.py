"""The subcommands of `fedcomp` that need nothing but the library: a file for each, with its `main`."""

import argparse
from pathlib import Path


def new_parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the command `prog`, whose help shows `description` with its lines as they are."""
    return argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def path_of(text: str) -> Path:
    """Return the path in an argument, with the home folder for ``~``, which no shell replaces in ``--out=~/runs``."""
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # of a home that is not known
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
