"""Claims of papers that no study measures: sparse models by an l1 penalty on the server, and dynamic sampling of nodes.

    python -m benchmarks.claims [sparse-models] [dynamic-sampling] [--seeds 3]

QCMD and QRDA AdaGrad: Xu et al., arXiv 2208.05631.  Hierarchical quantization with dynamic sampling: Jiang et al. (DHQC),
arXiv 2212.14760.  Fifty nodes have two classes of the digits each.  Accuracy is the mean of the last five evaluations of each
seed, ± the standard deviation over the seeds; zeros are those in the weight matrices of the final model.
"""

import contextlib
import io
import json
import logging
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.measurement import print_table
from clients.app import app as client_app
from deploy.run_config import ROOT, app_of
from fedcomp.commands import new_parser
from fedcomp.flower import LocalGrid
from server.app import run

NODES, LAST = 50, 5
SERVERS = (
    "fedavg",
    "qcmdadagrad(eta=0.1, delta=0.01, l1_strength=0)",
    "qcmdadagrad(eta=0.1, delta=0.01, l1_strength=0.0001)",
    "qcmdadagrad(eta=0.1, delta=0.01, l1_strength=0.001)",
    "qrdaadagrad(eta=0.1, delta=0.01, l1_strength=0.0001)",
    "qrdaadagrad(eta=0.1, delta=0.01, l1_strength=0.001)",
)
Settings = Mapping[str, str | float]
PARTS: Mapping[str, tuple[Settings, tuple[Settings, ...]]] = {
    "sparse-models": (
        {"num-rounds": 300, "local-steps": 1, "downlink": "dense()"},
        tuple(
            {"strategy": server, "uplink": uplink}
            for uplink in ("dense()", "ternary(feedback=True)")
            for server in SERVERS
        ),
    ),
    "dynamic-sampling": (
        {"num-rounds": 200, "fraction-train": 0.4},
        tuple(
            {"uplink": link, "downlink": link, "sampling-decay": decay}
            for link in ("dense()", "hierarchical(density=0.02)")
            for decay in (0.0, 0.01, 0.02)
        ),
    ),
}
"""Part -> the settings of all its runs, and those of each row."""


def measure(settings: Settings, seed: int) -> dict[str, float]:
    """Return the accuracy of a run in percent, the share of zeros in its model, and the MB up and in both directions."""
    with tempfile.TemporaryDirectory() as folder:
        config = {**app_of(ROOT)["config"], **settings, "seed": seed, "evaluate-every": 10}
        config |= {"runs-dir": folder, "run-name": "run"}
        with contextlib.redirect_stdout(io.StringIO()):
            run(LocalGrid(client_app, NODES, config, in_memory=True), config, draws=False)
        rounds = [json.loads(line) for line in Path(folder, "run", "rounds.jsonl").read_text().splitlines()]
        summary = json.loads(Path(folder, "run", "summary.json").read_text())
        with np.load(Path(folder, "run", "model.npz")) as model:
            zeros = np.concatenate([array.ravel() == 0 for array in model.values() if array.ndim > 1])
    accuracies = [record["accuracy"] for record in rounds if record["accuracy"] is not None]
    return {
        "accuracy": 100 * statistics.mean(accuracies[-LAST:]),
        "zeros": float(zeros.mean()),
        "up": summary["uplink_bytes"] / 1e6,
        "both": (summary["uplink_bytes"] + summary["downlink_bytes"]) / 1e6,
    }


def main() -> None:
    """Print a table for each part."""
    parser = new_parser("python -m benchmarks.claims", __doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all if none is named")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for part in options.parts or PARTS:
        common, arms = PARTS[part]
        rows: list[dict[str, object]] = []
        for arm in arms:
            runs = [measure({**common, **arm}, seed) for seed in range(options.seeds)]
            mean = {name: statistics.mean(one[name] for one in runs) for name in runs[0]}
            spread = statistics.stdev([one["accuracy"] for one in runs]) if len(runs) > 1 else 0.0
            rows.append(
                {
                    **arm,
                    "accuracy (%)": f"{mean['accuracy']:.1f} ± {spread:.1f}",
                    "zeros": f"{mean['zeros']:.0%}",
                    "MB up": f"{mean['up']:.2f}",
                    "both": f"{mean['both']:.2f}",
                }
            )
        print_table(f"{part}: {common['num-rounds']} rounds, {options.seeds} seeds", rows)


if __name__ == "__main__":
    main()
