"""Run the commands of a page again, and put what they print below them: all its figures are then of one code and one machine.

    python -m benchmarks.page docs/results/performance.md --data-dir DIR [--only jumps]

A block ```sh that is followed by a block ``` without a language is run as a whole, in the project's folder; what it prints
replaces the second block.  In a command, DIR stands for the folder of the datasets.  The page is written after each block, and
is left as it was from the first command on that fails.  Figures within sentences are not touched: read the page afterwards.
"""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

from deploy.run_config import ROOT

RUN = re.compile(r"^```sh\n(?P<commands>[^`]*)^```\n\n```\n.*?^```$", re.MULTILINE | re.DOTALL)


def main(arguments: list[str] | None = None) -> int:
    """Run the commands of a page, and return the exit status of the first that fails, or 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--data-dir", default="DIR", help="the folder of the datasets, for commands that name DIR")
    parser.add_argument("--only", default="", metavar="TEXT", help="run only commands that contain this text")
    options = parser.parse_args(arguments)
    try:
        text = options.page.read_text(encoding="utf-8")
    except OSError as error:
        parser.error(f"{options.page} cannot be read: {error.strerror}")
    chosen = [run for run in RUN.finditer(text) if options.only in run["commands"]]
    if not chosen:
        parser.error(f"{options.page} has no command with output below it that contains {options.only!r}")
    for run in chosen:
        commands = run["commands"]
        print(commands, end="", flush=True)
        script = re.sub(r"\bDIR\b", lambda _: shlex.quote(options.data_dir), commands)
        done = subprocess.run(["bash", "-euc", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            print(f"error: exit status {done.returncode} of {commands}", end="", file=sys.stderr)
            return done.returncode
        printed = "".join(f"{line.rstrip()}\n" for line in done.stdout.strip("\n").splitlines())
        text = text.replace(run[0], f"```sh\n{commands}```\n\n```\n{printed}```", 1)
        options.page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
