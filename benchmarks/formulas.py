"""The bits that each method sends according to its paper, from its settings alone, for comparison with measured bodies."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.core import Shapes
from fedcomp.quantize import num_kept

VALUE_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "natural": 9}


@dataclass(frozen=True, slots=True)
class Case:
    """All settings of a method, and the shapes of the tensors that it sends."""

    settings: Mapping[str, Any]
    shapes: Shapes

    @property
    def sizes(self) -> list[int]:
        """The number of entries of each tensor."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def n(self) -> int:
        """The number of entries of all tensors."""
        return sum(self.sizes)

    @property
    def kept(self) -> int:
        """The number of entries that are kept."""
        return num_kept(self.settings["density"], self.n)

    def sparse(self, value_bits: float, density: float | None = None) -> float:
        """Return the bits of the kept entries: for each a Golomb-coded position and `value_bits`."""
        k = self.kept if density is None else num_kept(density, self.n)
        return float(k * (position_bits(k / self.n) + value_bits))

    def values(self) -> float:
        """Return the bits of the kept entries, with their values as floats."""
        return self.sparse(VALUE_BITS[self.settings["values"]])

    def buckets(self, bits: float) -> float:
        """Return the bits of levels of `bits` each, and one float32 a bucket."""
        return float(bits * self.n + 32 * math.ceil(self.n / self.settings["bucket"]))

    def tensors(self, bits: float, floats: int) -> float:
        """Return the bits of levels of `bits` each, and `floats` float32 a tensor."""
        return bits * self.n + 32 * floats * len(self.shapes)


def paper_bits(compressor: Compressor, shapes: Shapes) -> float | None:
    """Return the bits of tensors of these shapes; None for a method whose paper gives no formula."""
    if compressor.name not in FORMULAS:
        return None
    parameters = inspect.signature(fedcomp.METHODS[compressor.name]).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    return FORMULAS[compressor.name](Case(defaults | dict(compressor.settings), shapes))


def position_bits(density: float) -> float:
    """Return the expected Golomb bits of a position kept with probability `density`: Sattler et al., TNNLS 2020, section V."""
    if density >= 1:
        return 1.0
    golden = (math.sqrt(5) + 1) / 2
    rice = max(0, 1 + math.floor(math.log2(math.log(golden - 1) / math.log1p(-density))))
    return rice + 1 / (1 - math.pow(1 - density, 2**rice))


def _selective(case: Case) -> float:
    k = sum(num_kept(case.settings["density"], size) for size in case.sizes)
    return k * (position_bits(k / case.n) + 32)


def _hierarchical(case: Case) -> float:
    shares = [0.5**level for level in range(1, case.settings["levels"])]
    splits = case.settings["top_levels"]
    shares += [(1 - sum(shares)) / splits] * splits
    entropy = -sum(share * math.log2(share) for share in shares)
    return case.sparse(1 + entropy) + 32 * len(shares)


def _doublesqueeze(case: Case) -> float:
    if case.settings["codec"] != "topk":
        return case.tensors(1 if case.settings["codec"] == "sign" else math.log2(3), 1)
    return case.sparse(32, case.settings["density"] or 0.0269)


def _qsgd(case: Case) -> float:
    return case.buckets(math.ceil(math.log2(2 * case.settings["levels"] + 1)))


def _cgx(case: Case) -> float:
    bits, bucket = case.settings["bits"], case.settings["bucket"]
    total = 0.0
    for size, shape in zip(case.sizes, case.shapes, strict=True):
        small = size < case.settings["dense_below"] or len(shape) < 2
        total += 32 * size if small else bits * size + 64 * math.ceil(size / bucket)
    return total


def _powersgd(case: Case) -> float:
    floats = 0
    for size, shape in zip(case.sizes, case.shapes, strict=True):
        rows = shape[0] if len(shape) > 1 else 0
        floats += min(size, case.settings["rank"] * (rows + size // rows)) if rows else size
    return 32 * floats


FORMULAS: Mapping[str, Callable[[Case], float]] = {
    "dense": lambda case: 32 * case.n,
    "stc": lambda case: case.sparse(1) + 32,
    "topk": Case.values,
    "randk": lambda case: 32 * case.kept,
    "selective": _selective,
    "hierarchical": _hierarchical,
    "regtopk": Case.values,
    "dgc": lambda case: (32 + 16) * case.kept,  # run lengths of 16 bits
    "sparseloco": lambda case: (12 + case.settings["bits"]) * case.kept,  # positions in a chunk of 4096 entries
    "ef21": Case.values,
    "signsgd": lambda case: case.tensors(1, 0),
    "onebit": lambda case: case.tensors(1, 2),
    "efsign": lambda case: case.tensors(1, 1),
    "doublesqueeze": _doublesqueeze,
    "qsgd": _qsgd,
    "ecqsgd": _qsgd,
    "natural": lambda case: 9 * case.n,
    "natural_dithering": lambda case: case.buckets(1 + math.log2(2 * case.settings["levels"])),
    "ternary": lambda case: case.tensors(math.log2(3), 1),
    "terngrad": lambda case: case.tensors(math.log2(3), 1),
    "cgx": _cgx,
    "drive": lambda case: case.n + 96,
    "eden": lambda case: case.settings["bits"] * case.n + 96,
    "powersgd": _powersgd,
}
"""Method -> its paper's formula. FastSGD has none: the number of entries that it keeps depends on the vector."""
