"""Values in the smallest format that holds them: by hand, back and forth to the bit, and damage."""

import struct

import numpy as np
import pytest

from fedcomp.core import BLOCK_ENTRIES, MAX_FLOAT32, Vector
from fedcomp.entropy.bits.byte_reader import ByteReader
from fedcomp.entropy.codes import alphabet, values
from fedcomp.entropy.codes.values import BF16, FP16, FP32, NATURAL
from fedcomp.errors import FedcompError
from fedcomp.quantized import round_to
from tests.entropy.laws import check_truncations
from tests.reference import slow_values


def floats(*entries: float) -> Vector:
    return np.array(entries, np.float32)


def read(data: bytes, k: int) -> Vector:
    reader = ByteReader(data)
    found = values.read(reader, k)
    reader.end()
    return found


def check(entries: Vector, form: int) -> bytes:
    """Return the stream of `entries`, which is of format `form` and from which they come back to the bit."""
    stream = values.write(entries)
    assert stream[0] == form
    found = read(stream, entries.size)
    assert found.dtype == np.float32
    assert found.tobytes() == entries.tobytes()
    return stream


def test_float32_values_are_written_as_in_memory() -> None:
    assert check(floats(0.1, -3e38), FP32) == bytes([FP32]) + struct.pack("<2f", 0.1, -3e38)


def test_values_of_eight_bits_are_upper_halves() -> None:
    # 1.5 is 3fc00000, -0.75 bf400000
    assert check(floats(1.5, -0.75), BF16).hex() == "01 c03f 40bf".replace(" ", "")


def test_values_of_eleven_bits_are_float16_over_a_power_of_two() -> None:
    # 1 + 2^-10 times 2^14 is 16400, -(1 + 2^-9) is -16416: 2^14 steps of 16, 0x7400 + 1 and + 2
    assert check(floats(1 + 2**-10, -(1 + 2**-9)), FP16).hex() == "02 0e00 0174 02f4".replace(" ", "")


def test_signed_powers_of_two_are_signs_and_exponents() -> None:
    # of 0.5, -0.5, 0.25, 0.5: signs 0100, exponents 126, 126, 125, 126
    exponents = np.array([126, 126, 125, 126], np.uint8)
    stream = check(floats(0.5, -0.5, 0.25, 0.5), NATURAL)
    assert stream == bytes([NATURAL, 0b0100_0000]) + alphabet.write(exponents, 255)


def test_no_values_take_no_bytes() -> None:
    assert values.write(floats()) == b""
    found = read(b"", 0)
    assert (found.size, str(found.dtype)) == (0, "float32")


@pytest.mark.parametrize("k", [1, 2, 1000, BLOCK_ENTRIES + 3])
@pytest.mark.parametrize("scale", [1.0, 2.0**-149, 2.0**-130, 2.0**-20, 1e38])
def test_rounded_values_are_written_in_the_format_they_were_rounded_to(k: int, scale: float) -> None:
    rng = np.random.default_rng(k)
    entries = (rng.uniform(-3, 3, k) * (scale if scale > 1e-40 else 2000 * scale)).astype(np.float32)
    if k > 2:
        entries[:2] = 3 * floats(scale, -scale)
    half = values.write(round_to(entries, "fp16"))
    assert half[0] in ((FP16,) if k > 2 and scale > 1e-40 else (BF16, FP16, NATURAL))
    check(round_to(entries, "fp16"), half[0])
    assert values.write(round_to(entries, "bf16"))[0] in ((BF16,) if k > 2 and scale > 1e-38 else (BF16, FP16, NATURAL))
    check(round_to(entries, "bf16"), values.write(round_to(entries, "bf16"))[0])


def test_a_largest_value_that_was_rounded_up_to_a_power_of_two_does_not_cost_the_format() -> None:
    entries = floats(1.99999, *(3 * 2.0**-38 for _ in range(9)), *(1.001 for _ in range(9)))
    rounded = round_to(entries, "fp16")
    assert rounded[0] == 2
    assert rounded[1] == 3 * 2.0**-38  # at the scale of 2 itself it would not be exact
    check(rounded, FP16)


def test_values_of_every_exponent_come_back_in_every_format() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, 3000, np.uint32)
    words = words[words >> 23 & 255 < 255]
    check(words.view(np.float32), FP32)
    check((words & np.uint32(0xFFFF0000)).view(np.float32), BF16)
    check((words & np.uint32(0xFF800000)).view(np.float32), NATURAL)


@pytest.mark.parametrize(
    "entries",
    [
        floats(0.0, -0.0),
        floats(0.0, 1 + 2**-10, -0.0),
        floats(2.0**-149),
        floats(2.0**-149, 3 * 2.0**-149, 1.0),
        floats(MAX_FLOAT32, -MAX_FLOAT32),
        floats(2.0**127, 2.0**-126),
        floats(2.0**127 * (1 + 2**-10), 2.0**113),
        (np.arange(1, 2001) * 2.0**-149).astype(np.float32),
    ],
)
def test_zeros_subnormals_and_the_largest_values_come_back_to_the_bit(entries: Vector) -> None:
    check(entries, values.write(entries)[0])


def test_the_smallest_format_wins() -> None:
    rng = np.random.default_rng(1)
    entries = rng.standard_normal(500).astype(np.float32)
    sizes = [len(values.write(round_to(entries, precision))) for precision in ("bf16", "fp16", "fp32")]
    assert sizes == [1001, 1003, 2001]
    powers = (2.0 ** np.rint(rng.uniform(-3, 3, 500))).astype(np.float32)
    assert len(values.write(powers)) < 500


def test_an_independent_decoder_finds_the_same_values() -> None:
    rng = np.random.default_rng(2)
    entries = rng.standard_normal(100).astype(np.float32)
    signs = np.copysign(rng.choice(floats(0.5, 2), 100), entries)
    for given in (entries, round_to(entries, "bf16"), round_to(entries, "fp16"), signs):
        stream = values.write(given)
        assert slow_values(stream, 0, 100) == (given.tolist(), len(stream))


# ---- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "numbers"),
    [
        ("", "0 bytes .* 1"),
        ("04", "format 4; 0 to 3"),
        ("00 0000803f 000080", "7 bytes .* 8"),
        ("00 0000803f 0000807f", "NaN or infinity"),
        ("00 0000803f 0000c07f", "NaN or infinity"),
        ("01 803f 80", "3 bytes .* 4"),
        ("01 803f 80ff", "NaN or infinity"),
        ("02 0e", "1 bytes .* 2"),
        ("02 0e00 0174 02", "3 bytes .* 4"),
        ("02 0e00 0174 007c", "NaN or infinity"),
        ("02 8eff 0174 0174", r"2\^-114; 2\^-113 to 2\^164"),
        ("02 a500 0174 0174", r"2\^165; 2\^-113 to 2\^164"),
        ("02 8fff ff7b 0174", "NaN or infinity"),
        ("03", "0 bytes .* 1"),
        ("03 01", "0x01"),
    ],
)
def test_a_stream_that_contradicts_itself_is_refused(stream: str, numbers: str) -> None:
    with pytest.raises(FedcompError, match=numbers):
        read(bytes.fromhex(stream), 2)


def test_every_truncation_is_refused() -> None:
    entries = np.random.default_rng(3).standard_normal(50).astype(np.float32)
    powers = np.copysign(floats(*(0.5**place for place in range(50))), entries)
    for given in (entries, round_to(entries, "bf16"), round_to(entries, "fp16"), powers):
        check_truncations(lambda cut: read(cut, 50), values.write(given))
