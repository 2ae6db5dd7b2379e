"""How bodies begin: n, the entries of the vector, and in those of kept entries k, how many are kept."""

from fedcomp.entropy.bits import varint
from fedcomp.entropy.protocol import MAX_ENTRIES
from fedcomp.errors import CorruptError

FREE, EACH = 1 << 20, 1024
"""Entries that any body may claim, or as many for each of its bytes, where its reader does not know how many to expect."""


def put(n: int, k: int) -> bytes:
    """Return the head of a body of `k` kept entries of `n`."""
    if n > MAX_ENTRIES:
        raise ValueError(f"a vector of {n} entries; at most {MAX_ENTRIES} can be encoded")
    return varint.put(n) + varint.put(k)


def take(data: bytes, n: int | None) -> tuple[int, int, int]:
    """Return n, k and where the next field begins.

    Refuses another n than the one asked for, more entries than bits (an entry takes one at least), and bytes behind the head
    of an empty selection.
    """
    total, at = take_n(data, n)
    k, at = varint.take(data, at, "k")
    if k > total or k > 8 * len(data):
        raise CorruptError(f"{k} kept entries of {total} in {len(data)} bytes")
    if k == 0 and at != len(data):
        raise CorruptError(f"{len(data) - at} bytes follow an empty selection")
    return total, k, at


def take_n(data: bytes, n: int | None) -> tuple[int, int]:
    """Return n and where the next field begins; refuse another n than the one asked for."""
    total, at = varint.take(data, 0, "n")
    check_n(total, n)
    return total, at


def check_n(total: int, n: int | None) -> None:
    """Refuse a body for `total` entries where it is another number than the one asked for, or too large for any."""
    if n is not None and total != n:
        raise CorruptError(f"a body for {total} entries; {n} are needed")
    if total > MAX_ENTRIES:
        raise CorruptError(f"a body that claims {total} entries; at most {MAX_ENTRIES}")


def check_claim(data: bytes, total: int, n: int | None) -> None:
    """Refuse a body whose few bytes stand for many entries, unless so many were asked for."""
    if n is None and total > max(FREE, EACH * len(data)):
        raise CorruptError(f"{len(data)} bytes that claim {total} entries, which nobody asked for")


def check_end(data: bytes, at: int) -> None:
    """Refuse bytes behind `at`, where the body ends."""
    if at != len(data):
        raise CorruptError(f"{len(data) - at} bytes follow the last field")
