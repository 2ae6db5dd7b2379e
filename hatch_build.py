"""The metadata that a package index shows, and the command `fedcomp`, where they differ from pyproject.toml.

Flower's bundles want ``license = { file = "LICENSE" }`` in pyproject.toml; an index wants the SPDX expression.  The pictures
and links of README.md are relative, and an index has none of the files: it shows the pictures' descriptions and the links'
texts instead.  Flower's bundles allow no ``[project.scripts]`` there either, so the command is declared here.
"""

import re
from pathlib import Path
from typing import Any

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
