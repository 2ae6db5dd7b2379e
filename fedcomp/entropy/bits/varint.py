"""Unsigned integers in seven bits a byte, low bits first; the top bit says that another byte follows (LEB128)."""


def write(value: int) -> bytes:
    """Return `value` >= 0 as a varint.  `ByteReader.varint` reads it."""
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    octets.append(value)
    return bytes(octets)
