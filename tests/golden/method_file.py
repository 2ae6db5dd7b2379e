"""The golden file of a method: its text, the digest of the vector that its body decodes to, and the body in hexadecimal."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import fedcomp
from tests.golden.content import UPDATE

FOLDER = Path(__file__).parent / "methods"
SHAPES = ((50, 40), (40,), (24, 40))
N = 3000
HEX_DIGITS = 96
"""Hexadecimal digits in a line."""


@dataclass(frozen=True)
class MethodFile:
    """The body of a method's first message for the first 3,000 entries of `UPDATE`, in tensors of `SHAPES`, with seed 7."""

    text: str
    digest: str
    body: bytes

    @classmethod
    def parse(cls, content: str) -> "MethodFile":
        """Return what a file holds."""
        method, vector, *lines = content.splitlines()
        return cls(method.removeprefix("method "), vector.removeprefix("vector sha256 "), bytes.fromhex("".join(lines)))

    def __str__(self) -> str:
        """Return the content of the file."""
        digits = self.body.hex()
        lines = [digits[start : start + HEX_DIGITS] for start in range(0, len(digits), HEX_DIGITS)]
        return "\n".join([f"method {self.text}", f"vector sha256 {self.digest}", *lines, ""])


def encode(text: str) -> bytes:
    """Return the body that the method writes today."""
    compressor = fedcomp.parse(text)
    return compressor.encode(UPDATE[:N], compressor.init(N), seed=7, server_round=0, shapes=SHAPES)[0]


def digest(text: str, body: bytes) -> str:
    """Return the SHA-256 of the vector in `body`, as little-endian float32."""
    return hashlib.sha256(fedcomp.parse(text).decode(body, N).astype("<f4").tobytes()).hexdigest()
