"""Cards: what they say, and how they refuse."""

from pathlib import Path

import pytest

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


def test_a_card_says_what_its_file_says(tmp_path: Path) -> None:
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
        ("fashion-mnist", (1, 28, 28), 60_000 * (28 * 28 + 1) + 16 + 8),
        ("cifar-10", (3, 32, 32), 50_000 * (3 * 32 * 32 + 1)),
        ("mnist-writers", (1, 28, 28), 60_000 * (28 * 28 + 1 + 8 * 4) + 16 + 8 + 12),
    ],
)
def test_the_cards_of_this_repository_read_and_their_sizes_fit_their_shapes(
    name: str, shape: tuple[int, ...], train_bytes: int
) -> None:
    card = read_card(name, CARDS)
    assert card.shape == shape
    assert card.num_classes == 10
    assert sum(file.size for file in card.train) == train_bytes


def test_a_card_says_whose_samples_are_whose_and_who_is_held_out(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    without_test = TEXT[: TEXT.index("test = [")] + TEXT[TEXT.index("[hub]") :]
    path.write_text(without_test.replace("resize = 4", 'groups = ["writer", "school"]\ntest_every = 5'))
    card = Card.read(path)
    assert card.groups == ("writer", "school")
    assert card.test_every == 5
    assert card.test == ()


def test_a_file_may_lie_in_a_folder_of_its_own() -> None:
    card = read_card("mnist-writers", CARDS)
    assert [file.folder for file in card.train] == ["", "", "qmnist-writers"]
    assert card.folder == "mnist"


def test_an_unknown_card_names_those_there_are() -> None:
    with pytest.raises(
        ValueError,
        match=r"no dataset card 'mnits'.*there are: cifar-10, digits, fashion-mnist, mnist, ",
    ):
        read_card("mnits", CARDS)


def test_a_name_cannot_leave_the_folder(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TEXT)
    (tmp_path / "cards").mkdir()
    with pytest.raises(ValueError, match="no dataset card"):
        read_card("../tiny", tmp_path / "cards")


def test_a_card_under_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "huge.toml").write_text(TEXT)
    with pytest.raises(ValueError, match=r"huge\.toml: name 'tiny'"):
        read_card("huge", tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('title = "Tiny"', "", "key 'title' is missing; the card needs: name, title"),
        ("resize", "rezise", "unknown key 'rezise'; the card may have: .*resize"),
        ("label =", "lable =", r"unknown key 'lable'; \[hub\] may have: id, image, label"),
        ("train = [{", "trian = [{", r"unknown key 'trian'; \[files\] may have: train, test"),
        ("size = 22, md5", "md5", "key 'size' is missing; files.train needs: name, size, md5"),
        ('"idx"', '"idy"', "format 'idy'; there are: cifar-binary, huggingface, idx, npz, qmnist, sklearn-digits"),
        ('"idx"', '"npz"', "files.train lists 2 files; format npz needs 1"),
        ('"idx"', "7", "key 'format' is 7; a text is needed"),
        ("shape = [1, 2, 3]", "shape = [2, 3]", r"shape \[2, 3\]; \(C, H, W\) or \(features,\)"),
        ("shape = [1, 2, 3]", "shape = [1, 2, true]", "key 'shape' holds True; a whole number"),
        ("shape = [1, 2, 3]", "shape = 6", "key 'shape' is 6; a list"),
        ("classes = 3", "classes = 1", "key 'classes' is 1; a list of names or a count"),
        ("classes = 3", 'classes = ["a"]', "1 classes; at least 2"),
        ("mean = [0]", "mean = [0, 0]", r"mean \[0.0, 0.0\]; a finite number for each of 1 channels"),
        ("mean = [0]", 'mean = ["0"]', "key 'mean' holds '0'; a number"),
        ("std = [0.5]", "std = [0]", r"std \[0.0\]; numbers above 0"),
        ("std = [0.5]", "std = [nan]", r"std \[nan\]; a finite number"),
        ("resize = 4", "resize = 0", "resize 0 of shape"),
        ('name = "x"', 'name = "../x"', "file name '../x'; a plain name"),
        ('folder = "published"', 'folder = "/etc"', "folder '/etc'; a plain name"),
        ("resize = 4", 'groups = ["writer", "writer"]', r"key 'groups' is .*; a list of different plain names"),
        ("resize = 4", "groups = [3]", r"key 'groups' is \[3\]; a list of different plain names"),
        ("resize = 4", "test_every = 5", r"test_every 5 with groups \[\]; at least 2 and a column"),
        ("resize = 4", 'groups = ["w"]\ntest_every = 1', r"test_every 1 with groups \['w'\]; at least 2"),
        ("resize = 4", 'groups = ["w"]\ntest_every = 2', "files.test lists 2 files; format idx needs 0"),
        ("size = 22", 'folder = "a/b", size = 22', "folder 'a/b'; a plain name"),
        ("size = 22", "size = -1", "file x: size -1"),
        ("0000000", "000", "file x: md5 '0+'; 32 lower-case hexadecimal digits"),
        ("[hub]", "[hub", "tiny.toml: "),
    ],
)
def test_a_wrong_card_is_refused_with_its_file_key_and_what_is_needed(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    path = tmp_path / "tiny.toml"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(ValueError, match=says) as caught:
        Card.read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_the_hub_format_needs_a_hub(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(TEXT[: TEXT.index("[files]")].replace('"idx"', '"huggingface"'))
    with pytest.raises(ValueError, match=r"format huggingface without \[hub\]; its id is needed"):
        Card.read(path)


def test_a_missing_card_is_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a dataset card is needed"):
        Card.read(tmp_path / "none.toml")
