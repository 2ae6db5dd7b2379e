"""The metadata that a package index shows, where it differs from pyproject.toml.

Flower's bundles want ``license = { file = "LICENSE" }`` in pyproject.toml; an index wants the SPDX expression.  The pictures
and links of README.md are relative, and an index has none of the files: it shows the pictures' descriptions and the links'
texts instead.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class IndexMetadata(MetadataHookInterface):
    """Hatchling runs it for each sdist and wheel."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the licence and the text of the page."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = re.sub(r"!\[([^]]*)\]\((?!https?:)[^)]*\)", r"*Figure: \1.*", text)
        text = re.sub(r"\[([^]]*)\]\((?!https?:)[^)]*\)", r"\1", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["license"] = "Apache-2.0"
        metadata[
            "scripts"
        ] = {}  # hatchling runs hooks only where a field is dynamic, and an sdist settles all fields but this
