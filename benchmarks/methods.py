"""The codec of every method: the size of an update, and the time to encode and decode it.

    python -m benchmarks.methods [--methods stc topk ...]

Each encodes and decodes a Gaussian update with the shapes of ResNet-18 (11.2 million entries), in multiples of a memcpy of it;
``paper`` is the number of bits a parameter that the method's paper gives (`formulas.py`), "-" if it gives none.  The study
`experiments/studies/methods.toml` measures the accuracy and the bytes of the methods.
"""

import argparse
import inspect
import math
from collections.abc import Iterator
from itertools import pairwise

import fedcomp
from benchmarks.codecs import measure
from benchmarks.formulas import paper_bits
from benchmarks.measurement import print_table
from fedcomp.core import Shapes, parse_call

DENSITY = 0.02
VARIANTS = {
    "topk": [
        f"topk(density={DENSITY}{more})" for more in ("", ", values='fp16'", ", values='natural'", ", feedback=False")
    ],
    "regtopk": [f"regtopk(density={DENSITY}, nodes=10)"],
    "dgc": [f"dgc(density={DENSITY}, momentum=0.5)"],
    "fastsgd": ["fastsgd(levels=8)"],
    "ef21": [f"ef21(density={DENSITY}, momentum=0.5)"],
    "signsgd": ["signsgd(step=0.005)"],
    "doublesqueeze": ["doublesqueeze()", "doublesqueeze(codec='topk')", "doublesqueeze(codec='random')"],
    "terngrad": ["terngrad()", "terngrad(scaler='power')"],
    "ternary": ["ternary()", "ternary(feedback=True)"],
    "qsgd": ["qsgd(levels=7)", "qsgd(levels=1, norm='l2')"],
    "cgx": ["cgx(bits=4)", "cgx(bits=4, adaptive=True)"],
    "crosspolytope": ["crosspolytope(bits=0.3)", "crosspolytope(bits=0.1)"],
    "eden": ["eden(bits=2)", "eden(bits=0.1)"],
    "powersgd": ["powersgd(rank=2)"],
}
"""Method -> its texts, for those that need other settings than a density, or several."""
CHOICES = ("auto", "balanced")
"""Methods without a codec of their own: they choose a method, or its density, round by round."""


def codecs() -> list[str]:
    """Return the methods with a codec of their own."""
    return [name for name in fedcomp.METHODS if name not in CHOICES]


def texts() -> Iterator[str]:
    """Yield the text of every method with a codec of its own, at about the same density if it has one."""
    for name in codecs():
        make = fedcomp.METHODS[name]
        settings = f"density={DENSITY}" if "density" in inspect.signature(make).parameters else ""
        yield from VARIANTS.get(name, [f"{name}({settings})"])


def resnet18() -> Shapes:
    """Return the shapes of the 62 parameters of ResNet-18 for CIFAR-10, 11,173,962 entries in all."""
    layers = [(64, 3, 3)]  # outputs, inputs, side of the filter
    for inputs, outputs in pairwise((64, 64, 128, 256, 512)):
        shortcut = [(outputs, inputs, 1)] if inputs != outputs else []
        layers += [(outputs, inputs, 3), (outputs, outputs, 3), *shortcut, *[(outputs, outputs, 3)] * 2]
    shapes: list[tuple[int, ...]] = []
    for outputs, inputs, side in layers:
        shapes += [(outputs, inputs, side, side), (outputs,), (outputs,)]
    return (*shapes, (10, 512), (10,))


def row(text: str, repeats: int) -> dict[str, str]:
    """Return encode and decode times in multiples of a memcpy, bits a parameter, and the paper's bits a parameter."""
    shapes = resnet18()
    n = sum(map(math.prod, shapes))
    compressor = fedcomp.parse(text)
    measured = measure(compressor, n, repeats, shapes)
    paper = paper_bits(compressor, shapes)
    return {
        "method": text,
        "encode x": f"{measured.encode:.1f}",
        "decode x": f"{measured.decode:.1f}",
        "bits/param": f"{8 * measured.size / n:.4f}",
        "paper": "-" if paper is None else f"{paper / n:.4f}",
    }


def main() -> None:
    """Print a table with a row for each method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", help="only these, by name")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    if unknown := set(options.methods or ()) - set(codecs()):
        parser.error(f"no method with a codec is called {', '.join(sorted(unknown))}; there are {', '.join(codecs())}")
    if options.repeats < 1:
        parser.error(f"{options.repeats} repeats; at least 1 is needed")
    chosen = [text for text in texts() if not options.methods or parse_call(text)[0] in options.methods]
    print_table("a Gaussian update with the shapes of ResNet-18", [row(text, options.repeats) for text in chosen])


if __name__ == "__main__":
    main()
