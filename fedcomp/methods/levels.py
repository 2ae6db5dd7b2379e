"""Methods that send every entry, as one of a few levels or as it is."""

from fedcomp.entropy.raw import Raw
from fedcomp.memory.none import NoMemory
from fedcomp.methods.registry import Parts, method
from fedcomp.quantize.identity import Identity


@method("none: every float32 as it is")
def dense() -> Parts:
    """Return the compressor that sends every float32 as it is and remembers nothing."""
    return Identity(), Raw(), NoMemory()
