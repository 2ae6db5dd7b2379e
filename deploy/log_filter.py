"""Chooses the lines of a run's log that a user wants to see."""

import re
from dataclasses import dataclass, field

HARMLESS = (  # lines of every run, and of every failed one, whose reason the launcher prints itself
    "Using SuperLink: ",
    "Successfully started run",
    "Successfully installed fedcomp",
    "Since flwr 1.32, default simulated SuperNodes",
    "fraction_evaluate is set to 0.0",
    "Manually terminating ClientAppActor",
    "Exit Code: 700",
    "An unhandled exception occurred when running the simulation.",
    "Exit Code: 201",
    "An unhandled exception occurred in the ServerApp.",
    "For more information, visit: <https://flower.ai/docs",
)


@dataclass
class LogFilter:
    """Shows a run's own lines, and each warning or error of Flower and Ray once.

    It hides the traceback of a `SettingsError`: the launcher prints its sentence.
    """

    verbose: bool
    seen: set[str] = field(default_factory=set[str])
    held: list[str] = field(default_factory=list[str])
    """The lines of a traceback whose last line is still to come."""

    def show(self, line: str) -> list[str]:
        """Return the lines to print now that `line` has arrived."""
        if self.verbose:
            return [line]
        plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
        if self.held:
            self.held.append(line)
            if plain.startswith((" ", "Traceback")) or not plain.strip():
                return []
            lines, self.held = self.held, []
            return [] if "SettingsError: " in plain else lines
        if re.match(r"ERROR\s*:\s+(Simulation|ServerApp) raised an exception", plain):
            self.held = [line]
            return []
        if re.match(r"(DEBUG|INFO)\s*:|\S+ \S+\s+(DEBUG|INFO)\s", plain) or any(text in plain for text in HARMLESS):
            return []
        # Ten nodes that fail alike differ in process ids and addresses only.
        content = re.sub(r"\W|0x[0-9a-f]+", "", re.sub(r"\(pid=.*", "", plain))
        if content in self.seen or re.fullmatch(r"[\s^~]*", plain):
            return []
        if content:
            self.seen.add(content)
        return [line]
