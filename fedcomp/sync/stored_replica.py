"""A replica as plain values and arrays, for files: a replica that is read back continues in the same bits."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedcomp.core import Arrays, octets
from fedcomp.errors import LayoutError
from fedcomp.sync.origin import Origin
from fedcomp.sync.replica import Replica
from fedcomp.wire import Layout, parse_layout


def stored_place(replica: Replica) -> dict[str, str]:
    """Return the numbers of `replica` as texts, because JSON has no 64-bit integers."""
    place = {"version": str(replica.version), "fingerprint": str(replica.fingerprint)}
    if replica.origin is None:
        return place
    base = replica.origin.base
    return place | {"origin": f"{base.version} {base.fingerprint}"}


def stored_arrays(replica: Replica) -> Arrays:
    """Return the arrays of `replica` by name, without copying them."""
    arrays: Arrays = {"exact": octets(replica.exact), "layout": octets(replica.layout.text)}
    if replica.origin is None:
        return arrays | {"vector": replica.vector}
    base = replica.origin.base  # the vector follows from these
    return arrays | {"base": base.vector, "base_exact": octets(base.exact), "counts": replica.origin.counts}


def from_stored(place: Mapping[str, str], arrays: Arrays) -> Replica:
    """Return the replica whose `stored_place` and `stored_arrays` these are; the arrays are handed over.

    Raises one of `CORRUPTION_ERRORS` for values that do not fit each other.
    """
    layout, exact = parse_layout(arrays["layout"].tobytes()), arrays["exact"].tobytes()
    vector = arrays["base" if "origin" in place else "vector"]
    _check_model(layout, vector, np.float32, exact)
    version, fingerprint = int(place["version"]), int(place["fingerprint"])
    if "origin" not in place:
        return Replica(layout, version, vector, exact, fingerprint)
    counts, base_exact = arrays["counts"], arrays["base_exact"].tobytes()
    _check_model(layout, counts, np.int32, base_exact)
    base_version, base_fingerprint = map(int, place["origin"].split())
    origin = Origin(Replica(layout, base_version, vector, base_exact, base_fingerprint), counts)
    return Replica(layout, version, origin.vector(), exact, fingerprint, origin)


def _check_model(layout: Layout, vector: NDArray[Any], dtype: type[np.generic], exact: bytes) -> None:
    """Raise `LayoutError` for stored arrays that the layout does not have."""
    if vector.shape != (layout.n,) or vector.dtype != dtype:
        raise LayoutError(f"a stored vector of {vector.size} entries; the stored layout has {layout.n}")
    if len(exact) != layout.exact_size:
        raise LayoutError(f"{len(exact)} bytes of exact tensors are stored; the stored layout has {layout.exact_size}")
