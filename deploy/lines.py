"""Which of the lines that a run prints are shown."""

import re
from dataclasses import dataclass, field

HARMLESS = (  # what Flower says of every run, and of every failed one before this launcher says why
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
class Filter:
    """Chooses which lines of a run are shown: its own, and the warnings and errors of Flower and Ray, each once.

    The traceback behind a setting that the ServerApp refused says nothing that the sentence does not: it is left out.
    """

    verbose: bool
    seen: set[str] = field(default_factory=set)
    held: list[str] = field(default_factory=list)

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
        said = re.sub(r"\W|0x[0-9a-f]+", "", re.sub(r"\(pid=.*", "", plain))  # ten nodes that fail alike say it once
        if said in self.seen or re.fullmatch(r"[\s^~]*", plain):
            return []
        if said:
            self.seen.add(said)
        return [line]
