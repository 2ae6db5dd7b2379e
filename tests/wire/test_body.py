"""Bodies before they are sent: the same vector to the bit, in no more bytes."""

import numpy as np
import pytest

import fedcomp
from fedcomp.core import Vector
from fedcomp.wire import codec_id, decode_body, layout_of, tightened

N = 20_000
LAYOUT = layout_of({"w": np.zeros(N, np.float32)})


def clustered() -> Vector:
    """Return a vector whose large entries are neighbours, as those of a layer that learns."""
    rng = np.random.default_rng(0)
    scale = np.full(N, 0.01)
    for start in rng.integers(0, N - 200, 12).tolist():
        scale[start : start + 200] = 1.0
    return np.asarray(rng.standard_normal(N) * scale, np.float32)


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("stc(density=0.02)", 12),
        ("topk(density=0.02)", 4),
        ("topk(density=0.02, values='natural')", 4),
        ("fastsgd()", 5),
    ],
)
def test_positions_in_clusters_take_fewer_bytes(text: str, codec: int) -> None:
    compressor = fedcomp.parse(text)
    body, _ = compressor.encode(clustered(), compressor.init(N))
    number, tight = tightened(codec_id(compressor.entropy), body, LAYOUT.n)
    assert number == codec
    assert len(tight) < len(body)
    assert decode_body(number, tight, LAYOUT).dense().tobytes() == compressor.decode(body, N).tobytes()


def test_where_golomb_code_is_the_smallest_it_stays() -> None:
    vector = np.random.default_rng(1).standard_normal(N, np.float32)
    compressor = fedcomp.stc(density=0.01)
    body, _ = compressor.encode(vector, compressor.init(N))
    assert tightened(2, body, LAYOUT.n) == (2, body)


@pytest.mark.parametrize("text", ["stc(order='interleaved')", "eden()", "qsgd()", "dense()", "powersgd()", "randk()"])
def test_other_codes_are_sent_as_they_are(text: str) -> None:
    compressor = fedcomp.parse(text)
    body, _ = compressor.encode(clustered(), compressor.init(N), shapes=((N,),))
    assert tightened(codec_id(compressor.entropy), body, LAYOUT.n) == (codec_id(compressor.entropy), body)


def test_a_body_of_no_entries_stays() -> None:
    compressor = fedcomp.stc(density=0.01)
    body, _ = compressor.encode(np.zeros(N, np.float32), compressor.init(N))
    assert tightened(2, body, LAYOUT.n) == (2, body)
