"""What `Compressor.encode` returns is what travels: whoever measures a body measures a federation's traffic."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.core import Vector
from fedcomp.methods import METHODS
from fedcomp.sync import Publisher, Subscriber, start_replica
from fedcomp.wire import codec_id, layout_of
from fedcomp.wire.frame import parse_single_frame
from fedcomp.wire.server_message import parse_server_message

SHAPES = {"w": (60, 50), "b": (50,)}
N = 3050
SECONDS = 8
"""Bytes of an update before its body: the seconds that encoding and decoding took."""
TEXTS = [f"{name}()" for name in METHODS if name not in ("auto", "balanced")]


def clustered(seed: int) -> Vector:
    """Return a change whose large entries are neighbours, as those of a layer that learns."""
    rng = np.random.default_rng(seed)
    scale = np.full(N, 0.01, np.float32)
    scale[200:260] = scale[3000:] = 1
    return rng.standard_normal(N, np.float32) * scale


@pytest.fixture
def returned(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the bodies that `Compressor.encode` has returned."""
    bodies: list[bytes] = []
    encode: Callable[..., tuple[bytes, Any]] = Compressor.encode

    def recorded(self: Compressor, *arguments: Any, **named: Any) -> tuple[bytes, Any]:
        body, state = encode(self, *arguments, **named)
        bodies.append(body)
        return body, state

    monkeypatch.setattr(Compressor, "encode", recorded)
    return bodies


@pytest.mark.parametrize("text", TEXTS)
def test_the_body_in_a_frame_is_the_one_that_the_compressor_returned(text: str, returned: list[bytes]) -> None:
    """In both directions, over three rounds."""
    compressor, about = fedcomp.parse(text), METHODS.about(text.partition("(")[0])
    model = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    layout = layout_of(model)
    server, node = Publisher.begin(start_replica(layout, model)), Subscriber()
    for turn in range(3):
        message, frames = parse_server_message(server.message_to(1, text, turn)[0].to_bytes())
        node.settle(message.acked, 1)
        node.follow(message, frames)
        trained = layout.unflatten(node.held.vector + clustered(turn), node.held.exact)
        if about.uplink:
            reply = node.update(node.learned(trained), message, 1, 0)
            frame = parse_single_frame(reply)
            assert (frame.codec, frame.payload[SECONDS:]) == (codec_id(compressor.entropy), returned.pop())
            server.confirm(1, server.parse_reply(1, reply))
        if about.downlink:
            before = server.replica
            server.publish(clustered(turn), b"", compressor, turn)
            [(frame, _)] = server.history.since(before.version, before.fingerprint)
            assert (frame.codec, frame.payload) == (codec_id(compressor.entropy), returned.pop())
        assert not returned


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("stc(density=0.02)", 0.8),
        ("topk(density=0.02)", 0.97),
        ("fastsgd()", 0.99),
        ("hierarchical(density=0.02)", 0.95),
    ],
)
def test_positions_in_clusters_take_fewer_bytes_than_in_golomb_code(text: str, share: float) -> None:
    compressor = fedcomp.parse(text)
    body, _ = compressor.encode(clustered(0), compressor.init(N))
    quantized = compressor.entropy.decode(body, n=N)
    golomb = type(compressor.entropy)("Golomb").encode(quantized)  # type: ignore[call-arg]
    assert len(body) < share * len(golomb)
