"""Reads the fields of a body in order; the reader owns the position and reports fields that are cut short."""

import struct
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedcomp.errors import CorruptError, TruncatedError

Octets = NDArray[np.uint8]


def write_varint(value: int) -> bytes:
    """Return `value` >= 0 in LEB128: seven bits a byte, low bits first; the top bit says that another byte follows."""
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)


class ByteReader:
    """A position in bytes that arrived; each read returns a field and moves the position behind the field.

    `what` names a field in errors.  Every read raises `TruncatedError` if the bytes end within the field.
    """

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.offset = 0

    @property
    def left(self) -> int:
        """Bytes from the position to the end."""
        return len(self.data) - self.offset

    def take(self, size: int, what: str) -> Octets:
        """Return the next `size` bytes, uint8, without copying them."""
        if size > self.left:
            raise TruncatedError(f"{what}: {self.left} bytes are left; {size} are needed")
        self.offset += size
        return np.frombuffer(self.data, np.uint8, size, self.offset - size)

    def byte(self, what: str) -> int:
        """Return the next byte."""
        if not self.left:
            raise TruncatedError(f"{what}: 0 bytes are left; 1 is needed")
        self.offset += 1
        return self.data[self.offset - 1]

    def varint(self, what: str) -> int:
        """Return an integer that `write_varint` wrote; refuse more than 63 bits and needless zero bytes."""
        value = shift = 0
        while True:
            byte = self.byte(what)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift > 56:
                raise CorruptError(f"{what}: the varint does not fit 63 bits")
        if byte == 0 and shift > 7:
            raise CorruptError(f"{what}: the varint {value} takes {shift // 7} bytes; fewer are enough")
        return value

    def array(self, dtype: DTypeLike, count: int, what: str) -> NDArray[Any]:
        """Return the next `count` numbers of `dtype`, without copying them."""
        return self.take(np.dtype(dtype).itemsize * count, what).view(dtype)

    def unpack(self, form: struct.Struct, what: str) -> tuple[Any, ...]:
        """Return the next numbers, in the format of `form`."""
        return form.unpack(self.take(form.size, what).tobytes())

    def bits(self, count: int, what: str) -> Octets:
        """Return the bytes of the next `count` bits; refuse padding bits that are not zero."""
        octets = self.take(-(-count // 8), what)
        if count % 8 and octets[-1] & (255 >> count % 8):
            raise CorruptError(f"{what}: a padding bit of the last byte, {octets[-1]:#04x}, is not zero")
        return octets

    def flags(self, count: int, what: str) -> NDArray[np.bool_]:
        """Return the next `count` bits as bools, (count,)."""
        return np.unpackbits(self.bits(count, what), count=count).view(np.bool_)

    def end(self) -> None:
        """Refuse bytes behind the last field."""
        if self.left:
            raise CorruptError(f"{self.left} bytes follow the last field")
