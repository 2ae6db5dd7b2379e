"""Runs of fedcomp's own app, one for each pair of a training plug-in and a feature of the run."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context, RecordDict

from clients.app import app as client_app
from fedcomp.flower import LocalGrid
from server.app import app as server_app

NODES = 4
LARGEST_LOSS = 0.97
"""The largest loss at the end, in units of that of the first model."""
Settings = Mapping[str, Any]
BASE: Settings = {
    "dataset": "digits",
    "model": "mlp",
    "num-rounds": 5,
    "partition": "iid()",
    "min-nodes": NODES,
    "fraction-train": 1.0,
    "fraction-evaluate": 0.0,
    "local-steps": 10,
    "learning-rate": 0.2,
    "node-timeout": 0.0,
    "run-name": "pair",
    "uplink": "topk(density=0.3)",
    "downlink": "dense()",
}
PLUG_INS = (
    "",
    "fedprox(0.01)",
    "batch_augmentation(2)",
    "mixed_precision()",
    "activation_compression(0.1)",
    "admm('ternary')",
    "quantized('ternary')",
    "quantized(4, activations=8)",
    "low_precision(8)",
    "zerofl(0.5)",
    "rigl(0.5)",
)
FEATURES: Mapping[str, Settings] = {
    "rounds": {},
    "async mode": {"mode": "async(buffer=3)"},
    "split learning": {
        "split": "split()",
        "split-layer": "2",
        "model": "cnn",
        "uplink": "auto",
        "downlink": "auto",
        "local-steps": 0,
        "learning-rate": 0.1,
        "fraction-train": 0.2,
        "fraction-evaluate": 0.0,
    },
    "no memory": {"uplink": "eden(bits=2)"},
    "residual and factors": {"uplink": "powersgd(rank=4)"},
    "residual and last message": {"uplink": "regtopk(density=0.3)"},
    "momentum of the uplink": {"uplink": "dgc(density=0.3, momentum=0.5, warmup=0)"},
    "estimate": {"uplink": "ef21(density=0.5)", "strategy": "ef21(eta=0.3)"},
    "chosen links": {"uplink": "auto()", "downlink": "auto()"},
    "compressed downlink": {"downlink": "stc(density=0.3)"},
    "FedAdam": {"strategy": "fedadam(eta=0.03)"},
    "FedMedian": {"strategy": "fedmedian()"},
    "RigL's strategy": {"strategy": "rigl(interval=2, until=4)"},
    "kept momentum": {"client-momentum": "keep", "momentum": 0.5, "learning-rate": 0.05},
    "Adam on the nodes": {"optimizer": "adam", "learning-rate": 0.01},
    "clipping": {"clip-norm": 100.0},
}

MASKED = ("residual and factors", "residual and last message", "momentum of the uplink", "estimate")
"""The features whose memory does not follow the masks of RigL."""
REFUSED = {
    *((text, "split learning") for text in PLUG_INS if text),
    *((text, "RigL's strategy") for text in PLUG_INS if not text.startswith("rigl")),
    *(("rigl(0.5)", feature) for feature in MASKED),
}
"""The pairs that a sentence refuses; all others learn."""


def outcome(plug_in: str, feature: str, config: Settings, folder: Path) -> str:
    """Return "" if the run learns, or the sentence that refuses it before anything starts; `config` are the app's defaults."""
    settings = {**config, **BASE, **FEATURES[feature], "training": plug_in, "runs-dir": str(folder)}
    random.seed(1)
    try:
        server_app(LocalGrid(client_app, NODES, settings), Context(1, 0, {}, RecordDict(), settings))
    except ValueError as error:
        if (folder / "pair" / "rounds.jsonl").exists():
            raise AssertionError("refused after nodes have trained") from error
        return str(error)
    rows = [json.loads(line) for line in (folder / "pair" / "rounds.jsonl").read_text().splitlines()]
    losses = [row["loss"] for row in rows if row["loss"] is not None]
    assert sum(row.get("refused", 0) + row.get("failed", 0) for row in rows) == 0
    assert losses[-1] < LARGEST_LOSS * losses[0], f"the loss is {losses[-1]:.3f} after {losses[0]:.3f}"
    return ""
