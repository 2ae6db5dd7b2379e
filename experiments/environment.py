"""What a study was run with: date, commit, versions and machine, so that its numbers can be placed later."""

import json
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from experiments.plan import StudyError
from experiments.results import write_text

FILE = "environment.json"
PACKAGES = ("fedcomp", "flwr", "torch", "numpy")
PROJECT = Path(__file__).resolve().parents[1]
CPU_INFO = Path("/proc/cpuinfo")


def environment() -> dict[str, str]:
    """Return the date, the commit (if this is a checkout), the processor, and the versions; nothing names the machine."""
    return dict(_entries())


def _entries() -> Iterator[tuple[str, str]]:
    yield "date", f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    if _git("rev-parse", "--show-toplevel") == str(PROJECT):
        commit = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
        yield "commit", f"{commit}, with local changes" if changed else commit
    yield "processor", f"{_processor()}, {os.cpu_count() or 1} cores"
    yield "system", f"{platform.system()} {platform.machine()}"
    yield "Python", platform.python_version()
    for package in PACKAGES:
        yield package, metadata.version(package)


def write_environment(folder: Path, found: Mapping[str, str]) -> None:
    """Write what `environment` returned before the first cell began, next to the results of a study."""
    write_text(folder / FILE, json.dumps(found, indent=2) + "\n")


def read_environment(folder: Path) -> dict[str, str]:
    """Return the environment in which the last cells of a study were run; empty if it was not recorded.

    Raises `StudyError` for a damaged file.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise StudyError(f"{path} is no JSON: {error}") from None
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise StudyError(f"{path} is no environment; an object of texts is needed")
    return value


def _git(*arguments: str) -> str:
    """Return the output of git in this checkout; empty if there is no git or no checkout."""
    try:
        done = subprocess.run(["git", "-C", str(PROJECT), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _processor() -> str:
    lines = CPU_INFO.read_text(encoding="utf-8").splitlines() if CPU_INFO.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
