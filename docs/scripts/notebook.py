"""Writes the page of the notebook, with its stored outputs: python -m docs.scripts.notebook.

The documentation's builder renders Markdown alone.  A notebook is JSON, so this needs no library.
"""

import base64
import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
NOTEBOOK = DOCS / "notebooks" / "first_steps.ipynb"
PAGE = DOCS / "start" / "first-steps.md"
NOTE = """!!! note
    This page is a notebook, `docs/notebooks/first_steps.ipynb`. Open it in Jupyter to run and change it.
"""


def render(notebook: Path, page: Path) -> dict[Path, bytes]:
    """Return the files of the page of a notebook: the Markdown, and its pictures next to it."""
    cells: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts, pictures = list[str](), dict[Path, bytes]()
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if "text" in output:
                parts.append(f"```\n{''.join(output['text']).rstrip()}\n```")
            else:
                picture = page.with_name(f"{page.stem}-{len(pictures) + 1}.png")
                pictures[picture] = base64.b64decode("".join(output["data"]["image/png"]))
                parts.append(f"![what this cell draws]({picture.name})")
    title, _, rest = parts[0].partition("\n")
    text = "\n\n".join([f"{title}\n\n{NOTE}{rest}", *parts[1:]]) + "\n"
    return {page: text.encode(), **pictures}


def main() -> None:
    """Write the page and its pictures."""
    for path, content in render(NOTEBOOK, PAGE).items():
        path.write_bytes(content)


if __name__ == "__main__":
    main()
