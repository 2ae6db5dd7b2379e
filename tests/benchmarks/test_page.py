"""A page's commands run again, and their output replaces what stood below them."""

from pathlib import Path

import pytest

from benchmarks.page import main

PAGE = """# A page

```sh
echo first DIR
echo second
```

```
of another day
```

Words, and a command without output:

```sh
exit 3
```

```sh
echo third  # jumps
```

```
old
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_the_output_of_each_command_stands_below_it_and_the_rest_is_as_it_was(page: Path) -> None:
    assert main([str(page), "--data-dir", "/srv/my  data"]) == 0
    assert page.read_text() == PAGE.replace("of another day", "first /srv/my  data\nsecond").replace("old", "third")


def test_only_the_commands_that_are_asked_for_run(page: Path) -> None:
    assert main([str(page), "--only", "jumps"]) == 0
    assert page.read_text() == PAGE.replace("old", "third")


def test_a_command_that_fails_ends_it_and_what_ran_before_is_kept(
    page: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page.write_text(PAGE.replace("echo third", "false\necho third"))
    assert main([str(page)]) == 1
    assert page.read_text() == PAGE.replace("of another day", "first DIR\nsecond").replace(
        "echo third", "false\necho third"
    )
    assert "error: exit status 1 of false\necho third  # jumps" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "only", "sentence"), [("no.md", "", "cannot be read: No such file"), ("page.md", "x", "contains 'x'")]
)
def test_a_page_that_is_not_there_or_has_no_such_command_is_refused(
    page: Path, name: str, only: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([str(page.parent / name), "--only", only])
    assert sentence in capsys.readouterr().err
