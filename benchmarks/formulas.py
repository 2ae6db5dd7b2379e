"""What the papers say that their methods send, in bits, from the settings alone: to hold measured bodies against."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from fedcomp.compressor import Compressor
from fedcomp.occasion import Shapes
from fedcomp.quantize.topk import kept

Settings = Mapping[str, Any]
VALUE_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "natural": 9}


def paper_bits(compressor: Compressor, defaults: Settings, shapes: Shapes) -> float | None:
    """Return the bits of a vector of tensors of these shapes; None where they depend on what the vector holds.

    `defaults` are the method's default settings, which the compressor's own go before.
    """
    formula = FORMULAS.get(compressor.name)
    sizes = [math.prod(shape) for shape in shapes]
    if formula is None:
        return None
    return formula(dict(defaults) | dict(compressor.settings), sizes, shapes)


def position_bits(density: float) -> float:
    """Return the expected Golomb bits of a position kept with probability `density`: Sattler et al., TNNLS 2020, section V."""
    if density >= 1:
        return 1.0
    golden = (math.sqrt(5) + 1) / 2
    rice = max(0, 1 + math.floor(math.log2(math.log(golden - 1) / math.log1p(-density))))
    return rice + 1 / (1 - math.pow(1 - density, 2**rice))


def _sparse(each: Callable[[Settings], float]) -> Callable[[Settings, list[int], Shapes], float]:
    def bits(settings: Settings, sizes: list[int], shapes: Shapes) -> float:
        k = kept(settings["density"], sum(sizes))
        return k * (position_bits(k / sum(sizes)) + each(settings))

    return bits


def _masked(settings: Settings, sizes: list[int], shapes: Shapes) -> float:
    k = sum(kept(settings["density"], size) for size in sizes)
    return k * (position_bits(k / sum(sizes)) + 32)


def _hierarchical(settings: Settings, sizes: list[int], shapes: Shapes) -> float:
    shares = [0.5**level for level in range(1, settings["levels"])]
    top = 1 - sum(shares)
    shares += [top / settings["top_levels"]] * settings["top_levels"]
    entropy = -sum(share * math.log2(share) for share in shares)
    return _sparse(lambda _: 1 + entropy)(settings, sizes, shapes) + 32 * len(shares)


def _buckets(bits: Callable[[Settings], float], scales: int) -> Callable[[Settings, list[int], Shapes], float]:
    def count(settings: Settings, sizes: list[int], shapes: Shapes) -> float:
        n = sum(sizes)
        return bits(settings) * n + 32 * scales * math.ceil(n / settings["bucket"])

    return count


def _per_tensor(bits: float, scales: int) -> Callable[[Settings, list[int], Shapes], float]:
    return lambda settings, sizes, shapes: bits * sum(sizes) + 32 * scales * len(sizes)


def _cgx(settings: Settings, sizes: list[int], shapes: Shapes) -> float:
    total = 0.0
    for size, shape in zip(sizes, shapes, strict=True):
        small = size < settings["dense_below"] or len(shape) < 2
        total += 32 * size if small else settings["bits"] * size + 64 * math.ceil(size / settings["bucket"])
    return total


def _powersgd(settings: Settings, sizes: list[int], shapes: Shapes) -> float:
    total = 0.0
    for size, shape in zip(sizes, shapes, strict=True):
        factors = settings["rank"] * (shape[0] + size // shape[0]) if len(shape) > 1 else size
        total += 32 * min(factors, size)
    return total


def _doublesqueeze(settings: Settings, sizes: list[int], shapes: Shapes) -> float:
    if settings["codec"] == "sign":
        return _per_tensor(1, 1)(settings, sizes, shapes)
    return _sparse(lambda _: 32)(dict(settings) | {"density": settings["density"] or 0.0269}, sizes, shapes)


def _rotated(bits: Callable[[Settings], float]) -> Callable[[Settings, list[int], Shapes], float]:
    return lambda settings, sizes, shapes: bits(settings) * sum(sizes) + 96


def _values(settings: Settings) -> float:
    return VALUE_BITS[settings["values"]]


FORMULAS: Mapping[str, Callable[[Settings, list[int], Shapes], float]] = {
    "dense": lambda settings, sizes, shapes: 32 * sum(sizes),
    "stc": _sparse(lambda _: 1),
    "topk": _sparse(_values),
    "randk": lambda settings, sizes, shapes: 32 * kept(settings["density"], sum(sizes)),
    "selective": _masked,
    "hierarchical": _hierarchical,
    "regtopk": _sparse(_values),
    "dgc": _sparse(_values),
    "sparseloco": _sparse(lambda settings: settings["bits"]),
    "ef21": _sparse(_values),
    "signsgd": _per_tensor(1, 0),
    "onebit": _per_tensor(1, 2),
    "efsign": _per_tensor(1, 1),
    "doublesqueeze": _doublesqueeze,
    "qsgd": _buckets(lambda settings: math.ceil(math.log2(2 * settings["levels"] + 1)), 1),
    "ecqsgd": _buckets(lambda settings: math.ceil(math.log2(2 * settings["levels"] + 1)), 1),
    "natural": lambda settings, sizes, shapes: 9 * sum(sizes),
    "natural_dithering": _buckets(lambda settings: 1 + math.log2(2 * settings["levels"]), 1),
    "terngrad": _per_tensor(math.log2(3), 1),
    "cgx": _cgx,
    "drive": _rotated(lambda _: 1),
    "eden": _rotated(lambda settings: settings["bits"]),
    "powersgd": _powersgd,
}
"""FastSGD is missing: how much it keeps is up to the vector."""
