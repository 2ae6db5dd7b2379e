"""Types of options on the command lines of experiments."""

import argparse


def positive(text: str) -> int:
    """Return the whole number above 0 in `text`; raise `ArgumentTypeError` for another text."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}; a whole number above 0 is needed")
    return int(text)
