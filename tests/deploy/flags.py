"""The flags of Flower's programs, from their own help."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path


@cache
def flags_of(program: str) -> frozenset[str]:
    """Return every ``--flag`` in the output of ``program --help``."""
    command = [str(Path(sys.executable).parent / program), "--help"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    return frozenset(re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", output))


def flags_in(arguments: list[str]) -> set[str]:
    """Return the flags that a command line names."""
    return {argument.partition("=")[0] for argument in arguments if argument.startswith("--")}


def value_of(flag: str, arguments: list[str]) -> str:
    """Return the value that a command line gives a flag, as ``--flag=value`` or ``--flag value``."""
    for index, argument in enumerate(arguments):
        if argument == flag:
            return arguments[index + 1]
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    raise AssertionError(f"{flag} is not among {arguments}")
