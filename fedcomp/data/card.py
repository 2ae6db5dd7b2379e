"""A dataset card: one TOML file that describes a dataset, so that a new dataset in a known format needs no code."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path, PurePath
from typing import Any, cast

from fedcomp.core import check_choice, check_int, check_range

FILES_PER_SPLIT: Mapping[str, tuple[int, int]] = {
    "sklearn-digits": (0, 0),
    "text": (0, 0),
    "huggingface": (0, 0),
    "idx": (2, 2),
    "qmnist": (3, 3),
    "npz": (1, 1),
    "cifar-binary": (1, 1000),
}
"""Known formats -> the least and the greatest number of files of a split."""
EMBEDDED = ("sklearn-digits", "text")
"""The formats of datasets that come with a library, or with their card."""
MAX_FILE_BYTES = 1 << 50
MAX_CLASSES = 100_000
MAX_SIDE = 1_000_000
"""Entries along one dimension of a sample."""


@dataclass(frozen=True, slots=True)
class CardFile:
    """A file as its authors publish it: plain name, size in bytes, md5 of the uncompressed content.

    `folder` is the plain name of its folder, if it differs from the card's folder.
    """

    name: str
    size: int
    md5: str
    folder: str = ""

    def __post_init__(self) -> None:
        _check_file_name("file name", self.name)
        _check_file_name("folder", self.folder or self.name)
        check_int(f"size of file {self.name}", self.size, 0, MAX_FILE_BYTES)
        _check_text(f"md5 of file {self.name}", self.md5)
        if not re.fullmatch("[0-9a-f]{32}", self.md5):
            raise ValueError(f"md5 of file {self.name} is {self.md5!r}; 32 lower-case hexadecimal digits are needed")


@dataclass(frozen=True, slots=True)
class Hub:
    """A dataset's id on the Hugging Face hub, with the names of its columns and splits there."""

    id: str
    image: str = "image"
    label: str = "label"
    train: str = "train"
    test: str = "test"

    def __post_init__(self) -> None:
        for key, value in asdict(self).items():
            _check_text(f"hub.{key}", value)


@dataclass(frozen=True, slots=True)
class Card:
    """A description of a dataset.

    Attributes:
        shape: The shape of a sample, (C, H, W) or (features,).
        classes: The names of the classes.
        mean: The mean of each channel, for values in [0, 1].
        std: The standard deviation of each channel, for values in [0, 1].
        train: The files of the training split; for ``idx`` the images, then the labels.
        test: The files of the test split.  A card of a node's own samples needs none.
        hub: The dataset on the Hugging Face hub, if it is there.
        resize: Height and width of the images that models read, if they differ from the stored ones.
        folder: The plain name of the folder in which the authors publish the files.
        groups: The columns that name the owner of each sample, such as ``writer``.
        text: Of the format ``text``: the texts themselves, with an empty line between two.
        test_texts: How many of these, the last ones, are the test split.
        test_every: If the authors give no test split, the samples of every n-th owner by the first column make one.

    Raises `ValueError` if a setting is out of range or contradicts another one.
    """

    name: str
    title: str
    format: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    licence: str
    source: str
    train: tuple[CardFile, ...] = ()
    test: tuple[CardFile, ...] = ()
    hub: Hub | None = None
    resize: int | None = None
    folder: str = ""
    groups: tuple[str, ...] = ()
    test_every: int | None = None
    text: str = ""
    test_texts: int = 0

    def __post_init__(self) -> None:
        for key in ("name", "title", "licence", "source"):
            _check_text(key, getattr(self, key))
        for key in ("shape", "classes", "mean", "std", "groups"):
            if not isinstance(getattr(self, key), tuple):
                raise ValueError(f"{key} is {getattr(self, key)!r}; a list is needed")
        object.__setattr__(self, "folder", self.folder or self.name)
        for key in ("name", "folder"):
            _check_file_name(key, getattr(self, key))
        check_choice("format", self.format, sorted(FILES_PER_SPLIT))
        self._check_samples()
        self._check_files()

    def _check_samples(self) -> None:
        if len(self.shape) not in (1, 3):
            raise ValueError(f"shape is {list(self.shape)}; (C, H, W) or (features,) is needed")
        for side in self.shape:
            check_int("shape", side, 1, MAX_SIDE)
        if len(self.classes) < 2 or not all(isinstance(name, str) for name in self.classes):
            raise ValueError(f"classes are {list(self.classes)}; at least 2 names, or their number, are needed")
        channels = self.shape[0] if len(self.shape) == 3 else 1
        for key, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) != channels:
                raise ValueError(f"{key} is {list(numbers)}; a number for each of {channels} channels is needed")
            for number in numbers:
                check_range(key, number, above=0 if key == "std" else -math.inf)
            object.__setattr__(self, key, tuple(map(float, numbers)))
        if self.resize is not None:
            check_int("resize", self.resize, 1, MAX_SIDE)
            if len(self.shape) != 3:
                raise ValueError(f"resize is {self.resize}, of shape {list(self.shape)}; only images (C, H, W) resize")

    def _check_files(self) -> None:
        named = all(isinstance(name, str) and name.isidentifier() for name in self.groups)
        if not named or len(set(self.groups)) < len(self.groups):
            raise ValueError(f"groups are {list(self.groups)}; different plain names of columns are needed")
        if self.test_every is not None:
            check_int("test_every", self.test_every, 2, MAX_FILE_BYTES)
            if not self.groups:
                raise ValueError(f"test_every is {self.test_every} without groups; a column of owners is needed")
        of_train = FILES_PER_SPLIT[self.format]
        of_test = (0, 0) if self.test_every else of_train
        for key, files, (least, most) in (("files.train", self.train, of_train), ("files.test", self.test, of_test)):
            if not least <= len(files) <= most and (files or key == "files.train"):
                need = str(least) if least == most else f"at least {least}"
                raise ValueError(f"{key} lists {len(files)} files; format {self.format} needs {need}")
        if self.format == "text":
            _check_text("text", self.text)
            check_int("test_texts", self.test_texts, 1, len(self.texts) - 1, "at least one text is left for training")
            if len(self.groups) != 1:
                raise ValueError(f"groups are {list(self.groups)}; format text has one column, the number of the text")
        elif self.text or self.test_texts:
            raise ValueError(f"text and test_texts are for the format text; the format is {self.format!r}")
        if self.format == "huggingface" and self.hub is None:
            raise ValueError("format huggingface without [hub]; its id is needed")

    @property
    def num_classes(self) -> int:
        """The number of classes n; labels are 0 to n - 1."""
        return len(self.classes)

    @property
    def texts(self) -> list[str]:
        """The texts of the format ``text``."""
        return self.text.strip().split("\n\n")

    @property
    def embedded(self) -> bool:
        """Whether the dataset needs neither files nor a network."""
        return self.format in EMBEDDED

    @classmethod
    def read(cls, path: str | Path) -> "Card":
        """Return the card in the TOML file `path`; raise `ValueError` with the file, the key and the possible values."""
        try:
            return _card(tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}; a dataset card is needed") from None
        except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors too
            raise ValueError(f"{path}: {error}") from None


def read_card(name: str, folder: str | Path) -> Card:
    """Return the card ``<folder>/<name>.toml``; raise a `ValueError` that lists the cards of the folder if it is missing."""
    try:
        names = sorted(path.stem for path in Path(folder).iterdir() if path.suffix == ".toml")
    except OSError as error:
        need = f"a readable folder with {name}.toml is needed"
        raise ValueError(f"no dataset card {name!r} in {folder}: {error.strerror}; {need}") from None
    if name not in names:
        raise ValueError(f"no dataset card {name!r} in {folder}; there are: {', '.join(names) or 'none'}")
    card = Card.read(Path(folder) / f"{name}.toml")
    if card.name != name:
        raise ValueError(f"{Path(folder) / name}.toml: name {card.name!r}; the file's name, {name!r}, is needed")
    return card


def _card(table: dict[str, Any]) -> Card:
    files = _as_table(table.pop("files", {}), "files")
    values = _arguments(Card, table, "the card", without=("train", "test"))
    for split, items in files.items():
        check_choice("key of [files]", split, ("train", "test"))
        if not isinstance(items, list):
            raise ValueError(f"files.{split} is {items!r}; a list of tables is needed")
        tables = cast(list[object], items)
        values[split] = tuple(CardFile(**_arguments(CardFile, item, f"files.{split}")) for item in tables)
    if "hub" in values:
        values["hub"] = Hub(**_arguments(Hub, values["hub"], "[hub]"))
    if isinstance(values["classes"], int):
        check_int("classes", values["classes"], 2, MAX_CLASSES, "a list of names or their number")
        values["classes"] = tuple(map(str, range(values["classes"])))
    return Card(**values)


def _arguments(kind: type, table: object, where: str, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the entries of a TOML table as arguments of the dataclass `kind`; lists become tuples."""
    entries = _as_table(table, where)
    known = {field.name: field.default is MISSING for field in fields(kind) if field.name not in without}
    for name, is_needed in known.items():
        if is_needed and name not in entries:
            raise ValueError(f"key {name!r} is missing; {where} needs it")
    for key in entries:
        if key not in known:
            raise ValueError(f"unknown key {key!r}; {where} may have: {', '.join(known)}")
    return {
        key: tuple(cast(list[object], value)) if isinstance(value, list) else value for key, value in entries.items()
    }


def _as_table(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is {value!r}; a table is needed")
    return cast(dict[str, object], value)


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}; a text is needed")


def _check_file_name(what: str, name: object) -> None:
    """Refuse a `name` that could lead out of its folder."""
    _check_text(what, name)
    if PurePath(str(name)).name != name or name == ".." or "\\" in str(name):
        raise ValueError(f"{what} {name!r}; a plain name without folders is needed")
