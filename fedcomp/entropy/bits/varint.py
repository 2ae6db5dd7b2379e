"""Unsigned integers in as many bytes as they need: seven bits a byte, low ones first, the top bit says that more follow."""

from fedcomp.errors import CorruptError, TruncatedError


def put(value: int) -> bytes:
    """Return `value` >= 0 as a varint (LEB128)."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def take(data: bytes, at: int, what: str) -> tuple[int, int]:
    """Return (value, where the next field begins); `what` names the value in errors."""
    value = shift = 0
    while True:
        if at >= len(data):
            raise TruncatedError(f"the body ends within {what}")
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
        if shift > 56:
            raise CorruptError(f"{what} does not fit 63 bits")
    if byte == 0 and shift > 7:
        raise CorruptError(f"{what} is not written in its shortest form")
    return value, at
