"""An update is checked before it counts: the memory that this needs, and the weights that it may lead to."""

import tracemalloc

import numpy as np
import pytest

import fedcomp
from fedcomp.core.compensated_update import BLOCK_ENTRIES
from fedcomp.core.types import Vector
from fedcomp.errors import CorruptError
from fedcomp.sync import updates
from fedcomp.sync.replica import Replica, start_replica
from fedcomp.wire.codec_ids import codec_id
from fedcomp.wire.frame import SECONDS, Frame, Kind
from fedcomp.wire.layout import layout_of

N = 4 * BLOCK_ENTRIES + 1


def published(value: float = 1) -> Replica:
    arrays = {"w": np.full(N, value, np.float32)}
    return start_replica(layout_of(arrays), arrays, 3)


def update(replica: Replica, text: str, vector: Vector) -> Frame:
    compressor = fedcomp.parse(text)
    body, _ = compressor.encode(vector, compressor.init(N))
    here = (replica.version, replica.version, replica.layout.digest, replica.fingerprint, 9)
    return Frame(Kind.UPDATE, codec_id(compressor.entropy), 0, *here, SECONDS.pack(1, 2) + body)


@pytest.mark.parametrize("place", [0, BLOCK_ENTRIES - 1, BLOCK_ENTRIES, N - 1])
@pytest.mark.parametrize("text", ["topk(density=1.0)", "topk(density=0.3)", "dense()"])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_entry_that_leads_to_a_weight_too_large_is_found_at_any_index(text: str, place: int, sign: int) -> None:
    vector = np.random.default_rng(0).standard_normal(N, np.float32)
    replica = published()
    updates.decode_update(update(replica, text, vector), replica)
    vector[place] = sign * 1.01e38
    with pytest.raises(CorruptError, match="its update leads to weights beyond 1e\\+38"):
        updates.decode_update(update(replica, text, vector), replica)


def test_the_resulting_weight_is_limited_not_the_update() -> None:
    replica = published(-9e37)
    vector = np.full(N, 1.8e38, np.float32)
    updates.decode_update(update(replica, "dense()", vector), replica)
    with pytest.raises(CorruptError, match="beyond 1e\\+38"):
        updates.decode_update(update(replica, "dense()", -vector), replica)


@pytest.mark.parametrize("text", ["stc(density=1.0)", "topk(density=1.0)", "dense()", "qsgd(bucket=1)"])
def test_decoding_an_update_needs_at_most_four_times_the_model_in_memory(text: str) -> None:
    replica = published()
    frame = update(replica, text, np.random.default_rng(0).standard_normal(N, np.float32))
    tracemalloc.start()
    updates.decode_update(frame, replica)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * 4 * N + len(frame.payload)
