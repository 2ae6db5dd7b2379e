"""The head of a body: n, the number of entries of the vector, and in bodies of kept entries k, the number of kept ones."""

from fedcomp.entropy.bits.byte_reader import ByteReader, write_varint
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError

MAX_UNREQUESTED_ENTRIES, MAX_ENTRIES_PER_BYTE = 1 << 20, 1024
"""If its reader does not know n, a body may claim 2^20 entries, or 1024 for each of its bytes if that is more.

Codes that take memory for every entry check this themselves; `Compressor.decode` checks it for all codes.
"""


def write(n: int, *numbers: int) -> bytes:
    """Return n and the `numbers` that follow it, such as k."""
    if n > MAX_ENTRIES:
        raise ValueError(f"a vector of {n} entries; at most {MAX_ENTRIES} can be encoded")
    return b"".join(map(write_varint, (n, *numbers)))


def read(reader: ByteReader, n: int | None) -> tuple[int, int]:
    """Return n and k.

    Refuses a body of another number of entries than `n`, more kept entries than bits (an entry takes at least one), and bytes
    behind the head of an empty selection.
    """
    total, k = read_n(reader, n), reader.varint("k")
    if k > total or k > 8 * len(reader.data):
        raise CorruptError(f"{k} kept entries of {total} in {len(reader.data)} bytes")
    if k == 0:
        reader.end()
    return total, k


def read_n(reader: ByteReader, n: int | None) -> int:
    """Return n; refuse another number than the needed `n`."""
    total = reader.varint("n")
    check_n(total, n)
    return total


def check_n(total: int, n: int | None) -> None:
    """Refuse a body of `total` entries if that is not the needed `n`, or is too many for any body."""
    if n is not None and total != n:
        raise CorruptError(f"a body of {total} entries; {n} are needed")
    if total > MAX_ENTRIES:
        raise CorruptError(f"a body of {total} entries; at most {MAX_ENTRIES} are allowed")


def check_claim(data: bytes, total: int, n: int | None) -> None:
    """Refuse a body that claims many entries in few bytes, unless its reader needs this number of entries."""
    if n is None and total > max(MAX_UNREQUESTED_ENTRIES, MAX_ENTRIES_PER_BYTE * len(data)):
        raise CorruptError(f"a body of {total} entries in {len(data)} bytes; decode it with n={total} if that is right")
