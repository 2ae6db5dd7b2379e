"""A dataset card: one TOML file that says what a dataset is, so that code need not.

``datasets/<name>.toml`` names the files with their sizes and md5 checksums, the shape, the classes, the normalisation,
where to get it and under which licence.  A new dataset in a known format is a new card and no code.
"""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

FILES_PER_SPLIT: Mapping[str, tuple[int, int]] = {
    "sklearn-digits": (0, 0),
    "huggingface": (0, 0),
    "idx": (2, 2),
    "qmnist": (3, 3),
    "npz": (1, 1),
    "cifar-binary": (1, 1000),
}
"""Format -> the least and the greatest number of files of a split; the formats that there are."""


@dataclass(frozen=True, slots=True)
class CardFile:
    """A file as its authors publish it: plain name, size in bytes, md5 of the uncompressed content.

    `folder` is the name of its folder, where that is not the card's.
    """

    name: str
    size: int
    md5: str
    folder: str = ""

    def __post_init__(self) -> None:
        """Refuse names that leave the folder, a negative size and a checksum that is none."""
        for what, name in (("file name", self.name), ("folder", self.folder)):
            if PurePath(name).name != name or "\\" in name:
                raise ValueError(f"{what} {name!r}; a plain name without folders is needed")
        if self.size < 0:
            raise ValueError(f"file {self.name}: size {self.size}; at least 0 is needed")
        if len(self.md5) != 32 or set(self.md5) - set("0123456789abcdef"):
            raise ValueError(f"file {self.name}: md5 {self.md5!r}; 32 lower-case hexadecimal digits are needed")


@dataclass(frozen=True, slots=True)
class Hub:
    """Where a dataset lies on the Hugging Face hub, with the names of its columns and splits there."""

    id: str
    image: str = "image"
    label: str = "label"
    train: str = "train"
    test: str = "test"


@dataclass(frozen=True, slots=True)
class Card:
    """What a dataset is: shape (C, H, W) or (features,), class names, and `mean` and `std` for values in [0, 1].

    `train` and `test` list the files of each split; for ``idx`` the images, then the labels.  A card of a node's own
    samples needs no `test`.  `folder` is the name of the folder in which the authors publish them.  `resize` is the
    height and width that models are given, if not the stored ones.  `groups` are the columns that say whose each sample
    is, as ``writer``.  Where the authors give no test split, `test_every` n makes one of all the samples of every n-th of
    the first column.

    Construction raises `ValueError` where the settings contradict each other.
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

    def __post_init__(self) -> None:
        """Check every setting against the others."""
        object.__setattr__(self, "folder", self.folder or self.name)
        for key, name in (("name", self.name), ("folder", self.folder)):
            if PurePath(name).name != name:
                raise ValueError(f"{key} {name!r}; a plain name without folders is needed")
        if self.format not in FILES_PER_SPLIT:
            raise ValueError(f"format {self.format!r}; there are: {', '.join(sorted(FILES_PER_SPLIT))}")
        if len(self.shape) not in (1, 3) or min(self.shape) < 1:
            raise ValueError(f"shape {list(self.shape)}; (C, H, W) or (features,) is needed, each at least 1")
        if len(self.classes) < 2:
            raise ValueError(f"{len(self.classes)} classes; at least 2 are needed")
        channels = self.shape[0] if len(self.shape) == 3 else 1
        for key, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) != channels or not all(map(math.isfinite, numbers)):
                raise ValueError(f"{key} {list(numbers)}; a finite number for each of {channels} channels is needed")
        if min(self.std) <= 0:
            raise ValueError(f"std {list(self.std)}; numbers above 0 are needed")
        if self.resize is not None and (self.resize < 1 or len(self.shape) != 3):
            raise ValueError(f"resize {self.resize} of shape {list(self.shape)}; at least 1 and (C, H, W) are needed")
        if self.test_every is not None and (self.test_every < 2 or not self.groups):
            there = f"test_every {self.test_every} with groups {list(self.groups)}"
            raise ValueError(f"{there}; at least 2 and a column to go by are needed")
        of_train = FILES_PER_SPLIT[self.format]
        of_test = (0, 0) if self.test_every else of_train
        for key, files, (least, most) in (("files.train", self.train, of_train), ("files.test", self.test, of_test)):
            if not least <= len(files) <= most and (files or key == "files.train"):
                need = str(least) if least == most else f"at least {least}"
                raise ValueError(f"{key} lists {len(files)} files; format {self.format} needs {need}")
        if self.format == "huggingface" and self.hub is None:
            raise ValueError("format huggingface without [hub]; its id is needed")

    @property
    def num_classes(self) -> int:
        """The number of classes; labels are 0 up to it."""
        return len(self.classes)

    @classmethod
    def read(cls, path: str | Path) -> "Card":
        """Return the card in the TOML file `path`; raises `ValueError` with the file, the key and what is possible."""
        try:
            table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
            return _card(table)
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror}; a dataset card is needed") from None
        except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors too
            raise ValueError(f"{path}: {error}") from None


def read_card(name: str, folder: str | Path) -> Card:
    """Return the card ``<folder>/<name>.toml``; raises `ValueError` that names the cards there are."""
    there = sorted(path.stem for path in Path(folder).glob("*.toml"))
    if name not in there:
        raise ValueError(f"no dataset card {name!r} in {folder}; there are: {', '.join(there) or 'none'}")
    card = Card.read(Path(folder) / f"{name}.toml")
    if card.name != name:
        raise ValueError(f"{Path(folder) / name}.toml: name {card.name!r}; the file's name, {name!r}, is needed")
    return card


def _card(table: Mapping[str, object]) -> Card:
    """Return the card that a parsed TOML table describes."""
    needed = ("name", "title", "format", "shape", "classes", "mean", "std", "licence", "source")
    _check_keys(table, needed, ("files", "hub", "resize", "folder", "groups", "test_every"), "the card")
    files = _table(table, "files")
    _check_keys(files, (), ("train", "test"), "[files]")
    return Card(
        name=_text(table, "name"),
        title=_text(table, "title"),
        format=_text(table, "format"),
        shape=tuple(_whole(number, "shape") for number in _items(table, "shape")),
        classes=_classes(table["classes"]),
        mean=tuple(_number(number, "mean") for number in _items(table, "mean")),
        std=tuple(_number(number, "std") for number in _items(table, "std")),
        licence=_text(table, "licence"),
        source=_text(table, "source"),
        train=tuple(_file(item, "files.train") for item in _items(files, "train")),
        test=tuple(_file(item, "files.test") for item in _items(files, "test")),
        hub=_hub(_table(table, "hub")) if "hub" in table else None,
        resize=_whole(table["resize"], "resize") if "resize" in table else None,
        folder=_text(table, "folder") if "folder" in table else "",
        groups=_names(table, "groups"),
        test_every=_whole(table["test_every"], "test_every") if "test_every" in table else None,
    )


def _hub(table: Mapping[str, object]) -> Hub:
    _check_keys(table, ("id",), ("image", "label", "train", "test"), "[hub]")
    return Hub(**{key: _text(table, key) for key in table})


def _file(item: object, where: str) -> CardFile:
    if not isinstance(item, dict):
        raise ValueError(f"key {where!r} holds {item!r}; tables {{ name, size, md5 }} are needed")
    _check_keys(item, ("name", "size", "md5"), ("folder",), where)
    folder = _text(item, "folder") if "folder" in item else ""
    return CardFile(_text(item, "name"), _whole(item["size"], "size"), _text(item, "md5"), folder)


def _classes(value: object) -> tuple[str, ...]:
    """Return the names, or "0" to "n-1" for a count n."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    if isinstance(value, int) and not isinstance(value, bool) and 2 <= value <= 100_000:
        return tuple(str(index) for index in range(value))
    raise ValueError(f"key 'classes' is {value!r}; a list of names or a count from 2 to 100000 is needed")


def _names(table: Mapping[str, object], key: str) -> tuple[str, ...]:
    names = [name for name in _items(table, key) if isinstance(name, str) and name.isidentifier()]
    if len(set(names)) < len(_items(table, key)):
        raise ValueError(f"key {key!r} is {table[key]!r}; a list of different plain names is needed")
    return tuple(names)


def _check_keys(table: Mapping[str, object], needed: tuple[str, ...], optional: tuple[str, ...], where: str) -> None:
    for key in needed:
        if key not in table:
            raise ValueError(f"key {key!r} is missing; {where} needs: {', '.join(needed)}")
    for key in table:
        if key not in needed + optional:
            raise ValueError(f"unknown key {key!r}; {where} may have: {', '.join(needed + optional)}")


def _table(table: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = table.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"key {key!r} is {value!r}; a table is needed")
    return value


def _items(table: Mapping[str, object], key: str) -> list[object]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise ValueError(f"key {key!r} is {value!r}; a list is needed")
    return value


def _text(table: Mapping[str, object], key: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value:
        raise ValueError(f"key {key!r} is {value!r}; a text is needed")
    return value


def _whole(value: object, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"key {key!r} holds {value!r}; a whole number is needed")
    return value


def _number(value: object, key: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"key {key!r} holds {value!r}; a number is needed")
    return float(value)
