"""The Flower that is installed, beside the versions that fedcomp was tested with."""

import re
from importlib import metadata


def unsupported_flower() -> str:
    """Return what is wrong with the version of Flower that is installed; empty if fedcomp was tested with it.

    Raises `PackageNotFoundError` if Flower, or fedcomp's own metadata, is not installed.
    """
    found = metadata.version("flwr")
    needed = next(text for text in metadata.requires("fedcomp") or () if re.match(r"flwr\W", text))
    bounds = {sign: _numbers(version) for sign, version in re.findall(r"(>=|<)([\d.]+)", needed)}
    if bounds[">="] <= _numbers(found) < bounds["<"]:
        return ""
    return f"flwr is {found}; {needed.partition(';')[0]} is needed"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))
