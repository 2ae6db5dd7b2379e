"""The metadata that a package index shows, the command `fedcomp`, and where a wheel comes from.

Flower's bundles want ``license = { file = "LICENSE" }`` in pyproject.toml; an index wants the SPDX expression.  The pictures
and links of README.md are relative, and an index has none of the files: it shows the pictures' descriptions and the links'
texts instead.  Flower's bundles allow no ``[project.scripts]`` there either, so the command is declared here.

A wheel and an sdist hold ``provenance.json``: the commit, whether files were changed since, and what built it.
"""

import json
import platform
import re
import subprocess
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class IndexMetadata(MetadataHookInterface):
    """Hatchling runs it for each sdist and wheel."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the licence, the text of the page, and the command."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = re.sub(r"!\[([^]]*)\]\((?!https?:)[^)]*\)", r"*Figure: \1.*", text)
        text = re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["license"] = "Apache-2.0"
        # Hatchling runs hooks only where a field is dynamic, and an sdist settles all fields but this.
        metadata["scripts"] = {"fedcomp": "fedcomp.__main__:main"}


class Provenance(BuildHookInterface[Any]):
    """Hatchling runs it for each sdist and wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file; a wheel that is built from an sdist has the sdist's."""
        if version == "editable":
            return
        given = Path(self.root, "provenance.json")
        if not given.exists():
            given = Path(self.directory, ".provenance.json")
            given.parent.mkdir(parents=True, exist_ok=True)
            given.write_text(json.dumps(self._provenance(), indent=2) + "\n", encoding="utf-8")
        name = "fedcomp/provenance.json" if self.target_name == "wheel" else "provenance.json"
        build_data["force_include"][str(given)] = name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what `initialize` wrote."""
        Path(self.directory, ".provenance.json").unlink(missing_ok=True)

    def _provenance(self) -> dict[str, object]:
        commit, changes = self._git("rev-parse", "HEAD"), self._git("status", "--porcelain")
        return {
            "commit": commit,
            "modified": None if changes is None else bool(changes),
            "built with": {"python": platform.python_version(), "hatchling": version_of("hatchling")},
        }

    def _git(self, *arguments: str) -> str | None:
        """Return what git prints; None without git, and outside of its repository."""
        if not Path(self.root, ".git").exists():
            return None
        try:
            done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None
