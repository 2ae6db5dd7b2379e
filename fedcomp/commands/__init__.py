"""The subcommands of `fedcomp` that need nothing but the library: a file for each, with its `main`."""

import argparse


def new_parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the command `prog`, whose help shows `description` with its lines as they are."""
    return argparse.ArgumentParser(
        prog=prog, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
