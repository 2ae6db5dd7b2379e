"""Dataset cards: reading them, and refusing wrong ones."""

from pathlib import Path

import pytest

from fedcomp.data import load
from fedcomp.data.card import Card, CardFile, Hub, read_card

CARDS = Path(__file__).parents[2] / "datasets"

TEXT = """
name = "tiny"
title = "Tiny"
format = "idx"
shape = [1, 2, 3]
resize = 4
classes = 3
mean = [0]
std = [0.5]
licence = "none"
source = "nowhere"
folder = "published"
[files]
train = [{ name = "x", size = 22, md5 = "00000000000000000000000000000000" },
         { name = "y", size = 9, md5 = "11111111111111111111111111111111" }]
test = [{ name = "u", size = 22, md5 = "22222222222222222222222222222222" },
        { name = "v", size = 9, md5 = "33333333333333333333333333333333" }]
[hub]
id = "someone/tiny"
label = "digit"
"""


def test_a_card_holds_the_entries_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(TEXT)
    assert Card.read(path) == Card(
        name="tiny",
        title="Tiny",
        format="idx",
        shape=(1, 2, 3),
        resize=4,
        classes=("0", "1", "2"),
        mean=(0.0,),
        std=(0.5,),
        licence="none",
        source="nowhere",
        folder="published",
        train=(CardFile("x", 22, "0" * 32), CardFile("y", 9, "1" * 32)),
        test=(CardFile("u", 22, "2" * 32), CardFile("v", 9, "3" * 32)),
        hub=Hub("someone/tiny", image="image", label="digit", train="train", test="test"),
    )


@pytest.mark.parametrize(
    ("name", "shape", "train_bytes"),
    [
        ("digits", (1, 8, 8), 0),
        ("mnist", (1, 28, 28), 60_000 * (28 * 28 + 1) + 16 + 8),
        ("mnist-8", (1, 28, 28), 60_000 * (28 * 28 + 1) + 16 + 8),
        ("fashion-mnist", (1, 28, 28), 60_000 * (28 * 28 + 1) + 16 + 8),
        ("cifar-10", (3, 32, 32), 50_000 * (3 * 32 * 32 + 1)),
        ("mnist-writers", (1, 28, 28), 60_000 * (28 * 28 + 1 + 8 * 4) + 16 + 8 + 12),
    ],
)
def test_the_file_sizes_in_the_cards_of_this_repository_fit_their_shapes(
    name: str, shape: tuple[int, ...], train_bytes: int
) -> None:
    card = read_card(name, CARDS)
    assert card.shape == shape
    assert card.num_classes == 10
    assert sum(file.size for file in card.train) == train_bytes


def test_a_card_names_the_owners_of_samples_and_the_held_out_ones(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    without_test = TEXT[: TEXT.index("test = [")] + TEXT[TEXT.index("[hub]") :]
    path.write_text(without_test.replace("resize = 4", 'groups = ["writer", "school"]\ntest_every = 5'))
    card = Card.read(path)
    assert card.groups == ("writer", "school")
    assert card.test_every == 5
    assert card.test == ()


def test_a_file_may_be_in_another_folder() -> None:
    card = read_card("mnist-writers", CARDS)
    assert [file.folder for file in card.train] == ["", "", "qmnist-writers"]
    assert card.folder == "mnist"


def test_a_card_is_found_by_its_own_name_in_its_own_folder_only(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'mnits'.*: cifar-10, digits, fashion-mnist, mnist, "):
        read_card("mnits", CARDS)
    with pytest.raises(ValueError, match="none.toml"):
        Card.read(tmp_path / "none.toml")
    (tmp_path / "huge.toml").write_text(TEXT)
    (tmp_path / "cards").mkdir()
    with pytest.raises(ValueError, match=r"'\.\./huge'"):
        read_card("../huge", tmp_path / "cards")
    with pytest.raises(ValueError, match=r"huge\.toml: name 'tiny'"):
        read_card("huge", tmp_path)
    with pytest.raises(ValueError, match=r"'huge' in .*/none: No such file or directory; .* huge\.toml is needed"):
        read_card("huge", tmp_path / "none")
    with pytest.raises(ValueError, match=r"'huge' in .*/huge\.toml: Not a directory; "):
        read_card("huge", tmp_path / "huge.toml")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('title = "Tiny"', "", "'title'"),
        ('title = "Tiny"', "title = 3", "title is 3;"),
        ("resize", "rezise", "'rezise'.*resize"),
        ("label =", "lable =", r"'lable'.*\[hub\].*id, image, label"),
        ('label = "digit"', "label = 3", "hub.label is 3;"),
        ("train = [{", "trian = [{", r"\[files\].*'trian'.*'train', 'test'"),
        ("[files]", "train = []\n[files]", "'train'"),
        ("size = 22, md5", "md5", "'size'.*files.train"),
        ('"idx"', '"idy"', "'idy'.*'cifar-binary', 'huggingface', 'idx', 'npz', 'qmnist', 'sklearn-digits', 'text'"),
        ('"idx"', '"npz"', "files.train lists 2 files.* 1"),
        ('"idx"', "7", "format is 7;"),
        ("shape = [1, 2, 3]", "shape = [2, 3]", r"shape is \[2, 3\];"),
        ("shape = [1, 2, 3]", "shape = [1, 2, true]", "shape is True;"),
        ("shape = [1, 2, 3]", "shape = [1, 2, 0]", "shape is 0;"),
        ("shape = [1, 2, 3]", "shape = 6", "shape is 6;"),
        ("classes = 3", "classes = 1", "classes is 1;"),
        ("classes = 3", 'classes = ["a"]', r"classes are \['a'\];.* 2"),
        ("classes = 3", 'classes = ["a", 3]', r"classes are \['a', 3\];"),
        ("classes = 3", "classes = 3.5", "classes is 3.5;"),
        ("mean = [0]", "mean = [0, 0]", r"mean is \[0, 0\];.* 1 "),
        ("mean = [0]", 'mean = ["0"]', "mean is '0';"),
        ("mean = [0]", "mean = [inf]", "mean is inf;"),
        ("std = [0.5]", "std = [0]", "std is 0;"),
        ("std = [0.5]", "std = [nan]", "std is nan;"),
        ("resize = 4", "resize = 0", "resize is 0;"),
        ('name = "x"', 'name = "../x"', "file name '../x';"),
        ('folder = "published"', 'folder = "/etc"', "folder '/etc';"),
        ('folder = "published"', 'folder = ".."', "folder '..';"),
        ("resize = 4", 'groups = ["writer", "writer"]', "groups are .*'writer', 'writer'"),
        ("resize = 4", "groups = [3]", r"groups are \[3\];"),
        ("resize = 4", "test_every = 5", "test_every is 5 "),
        ("resize = 4", 'groups = ["w"]\ntest_every = 1', "test_every is 1;"),
        ("resize = 4", 'groups = ["w"]\ntest_every = 2', "files.test lists 2 files.* 0"),
        ("resize = 4", 'text = "a"', "text and test_texts are for the format text; the format is 'idx'"),
        ("size = 22", 'folder = "a/b", size = 22', "folder 'a/b';"),
        ("size = 22", "size = -1", "file x is -1;"),
        ("size = 22", 'size = "22"', "file x is '22';"),
        ("0000000", "000", "file x is '0+';.*32"),
        ("[hub]", "[hub", "tiny.toml: "),
    ],
)
def test_a_wrong_card_is_refused_with_its_file_key_and_value(tmp_path: Path, old: str, new: str, named: str) -> None:
    path = tmp_path / "tiny.toml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(ValueError, match=named) as caught:
        Card.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_the_hub_format_needs_a_hub(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(TEXT[: TEXT.index("[files]")].replace('"idx"', '"huggingface"'))
    with pytest.raises(ValueError, match=r"huggingface without \[hub\]"):
        Card.read(path)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("From fairest creatures", "From fairest créatures", "the character 'é'"),
        ("test_texts = 10", "test_texts = 90", "test_texts is 90;.*89"),
        ("test_texts = 10\n", "", "test_texts is 0;"),
        ('groups = ["sonnet"]', "", r"groups are \[\];.*the number of the text"),
        ('text = """', 'title2 = """', "unknown key 'title2'"),
    ],
)
def test_a_card_whose_text_does_not_fit_is_refused(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = (CARDS / "sonnets.toml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "sonnets.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ValueError, match=named):
        load(read_card("sonnets", tmp_path))
