"""The import law: an allow-list per room, read from the source text, so that no import has to run.

A rule belongs to a folder or a file; the longest match decides.  It lists every module outside the file's own room that the
file may import: one of ours by its full name, a third party's package by its first name.  The standard library is free.
A room's `__init__` is its interface: `fedcomp.core` allows `from fedcomp.core import Vector`, but no file behind it.
"""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DYNAMIC = ("__import__", "import_module")
OURS = ("fedcomp", "server", "clients", "deploy", "benchmarks", "experiments")

RULES = {
    # the library, in the direction of its rooms; the core needs numpy alone
    "fedcomp/errors.py": "",
    "fedcomp/core/": "numpy fedcomp.errors",
    "fedcomp/quantized/": "numpy fedcomp.core",
    "fedcomp/backends/": "numpy torch fedcomp.core fedcomp.errors fedcomp.quantized",
    "fedcomp/quantize/": "numpy fedcomp.backends fedcomp.core fedcomp.errors fedcomp.quantized",
    "fedcomp/entropy/": "numpy fedcomp.core fedcomp.errors fedcomp.quantized",
    "fedcomp/memory/": "numpy fedcomp.backends fedcomp.core fedcomp.quantized",
    "fedcomp/compressor.py": """numpy fedcomp.core fedcomp.entropy fedcomp.errors fedcomp.memory fedcomp.quantize
        fedcomp.quantized""",
    "fedcomp/methods/": """numpy fedcomp.compressor fedcomp.core fedcomp.entropy fedcomp.memory fedcomp.quantize
        fedcomp.quantized""",
    "fedcomp/wire/": "numpy fedcomp.backends fedcomp.core fedcomp.entropy fedcomp.errors fedcomp.methods fedcomp.quantized",
    "fedcomp/sync/": """numpy
        fedcomp.backends fedcomp.compressor fedcomp.core fedcomp.errors fedcomp.memory fedcomp.methods fedcomp.quantize
        fedcomp.quantized fedcomp.wire""",
    "fedcomp/gossip/": """numpy
        fedcomp.compressor fedcomp.core fedcomp.errors fedcomp.memory fedcomp.methods fedcomp.quantized fedcomp.sync
        fedcomp.wire""",
    "fedcomp/gossip/__main__.py": "fedcomp.commands fedcomp.errors",
    "fedcomp/gossip/peers/": "google grpc grpc_health grpc_reflection numpy fedcomp.core fedcomp.errors fedcomp.sync",
    "fedcomp/split/": """numpy torch
        fedcomp.compressor fedcomp.core fedcomp.entropy fedcomp.errors fedcomp.methods fedcomp.sync fedcomp.wire""",
    "fedcomp/flower/": """numpy filelock flwr google
        fedcomp.compressor fedcomp.core fedcomp.errors fedcomp.memory fedcomp.methods fedcomp.sync fedcomp.wire""",
    "fedcomp/flower/compat/lazy_array.py": "numpy flwr torch fedcomp.core fedcomp.wire",  # torch for its types alone
    "fedcomp/flower/training_state.py": "flwr torch fedcomp.wire",  # torch for its types alone
    "fedcomp/flower/split/": "torch filelock flwr fedcomp.core fedcomp.errors fedcomp.split fedcomp.wire",
    "fedcomp/data/__main__.py": "numpy fedcomp.commands",
    "fedcomp/data/": "numpy datasets flwr_datasets huggingface_hub sklearn fedcomp.core",
    "fedcomp/tasks/": "numpy torch fedcomp.core fedcomp.data",
    "fedcomp/training/": "numpy torch fedcomp.core fedcomp.wire",
    "fedcomp/warm/": "fedcomp.versions",
    "fedcomp/versions.py": "",
    # what the library shows
    "fedcomp/__init__.py": "fedcomp fedcomp.compressor fedcomp.errors fedcomp.methods fedcomp.wire",
    "fedcomp/commands/": """fedcomp.errors fedcomp.flower.demo fedcomp.methods fedcomp.quantized fedcomp.sync fedcomp.training
        fedcomp.wire""",
    "fedcomp/commands/export.py": "numpy safetensors fedcomp.core fedcomp.training",
    "fedcomp/commands/warm.py": "fedcomp.warm",
    "fedcomp/commands/doctor.py": "torch fedcomp fedcomp.versions",  # torch where it is installed
    "fedcomp/__main__.py": "fedcomp",
    "fedcomp/testing.py": """numpy fedcomp.compressor fedcomp.core fedcomp.entropy fedcomp.errors fedcomp.memory
        fedcomp.methods fedcomp.quantize fedcomp.quantized""",
    # the Flower app: its two sides never import each other, and torch stays out of the server's loop
    "server/": """flwr matplotlib rich fedcomp fedcomp.core fedcomp.data fedcomp.errors fedcomp.flower
        fedcomp.flower.compat fedcomp.sync""",
    "server/settings.py": "pydantic pydantic_core fedcomp fedcomp.data fedcomp.flower",
    "server/evaluate.py": """numpy torch flwr
        fedcomp fedcomp.core fedcomp.data fedcomp.flower fedcomp.sync fedcomp.tasks fedcomp.training""",
    "server/split.py": "torch flwr fedcomp.core fedcomp.errors fedcomp.flower.split fedcomp.split fedcomp.sync",
    "clients/": """numpy torch flwr
        fedcomp.core fedcomp.data fedcomp.flower fedcomp.flower.split fedcomp.split fedcomp.tasks fedcomp.training""",
    # tools
    "deploy/": "cryptography filelock grpc grpc_health psutil pydantic tomli_w fedcomp.core fedcomp.warm",
    "deploy/run_config.py": """click pydantic tomli_w torch fedcomp.core fedcomp.data fedcomp.flower.compat fedcomp.tasks
        clients.devices clients.plug_ins server.evaluate server.fit server.folder server.settings server.split""",
    "deploy/local_cli.py": "filelock fedcomp.commands fedcomp.data",
    "deploy/stop_report.py": "server.folder server.run_status",
    "deploy/monitor/": """numpy prometheus_client rich fedcomp.commands fedcomp.core fedcomp.sync
        server.folder server.progress server.run_records server.run_status""",
    "benchmarks/": """numpy torch flwr matplotlib pandas psutil seaborn fedcomp fedcomp.commands fedcomp.compressor fedcomp.core
        fedcomp.data fedcomp.flower fedcomp.quantize fedcomp.tasks clients.app clients.local clients.samples server.app
        deploy.federation deploy.program deploy.run_config""",
    "benchmarks/node_state.py": """numpy fedcomp fedcomp.wire fedcomp.sync flwr fedcomp.flower.compat
        fedcomp.flower.client.client_state fedcomp.flower.client.context_store fedcomp.flower.client.state_folder""",
    "benchmarks/rounds_app/": "numpy flwr fedcomp fedcomp.flower",
    "benchmarks/positions.py": """numpy torch flwr zstandard constriction fedcomp fedcomp.flower
        fedcomp.flower.records fedcomp.quantized fedcomp.sync fedcomp.tasks fedcomp.wire
        fedcomp.entropy.codes.gamma fedcomp.entropy.codes.positions clients.app clients.local clients.samples
        deploy.run_config""",
    "benchmarks/catching_up.py": """numpy flwr pandas fedcomp.commands fedcomp.flower
        fedcomp.flower.server.model.published_model fedcomp.quantized fedcomp.sync fedcomp.sync.node_registry
        fedcomp.sync.publisher fedcomp.wire fedcomp.wire.selection fedcomp.entropy.codes.positions clients.app
        deploy.run_config server.app""",
    "benchmarks/gpu.py": "torch fedcomp fedcomp.tasks fedcomp.training",
    "benchmarks/federation.py": """torch
        fedcomp fedcomp.data fedcomp.sync fedcomp.tasks fedcomp.training fedcomp.wire clients.samples""",
    "benchmarks/quantized_language_model.py": """torch
        fedcomp.commands fedcomp.data fedcomp.tasks fedcomp.training clients.samples""",
    "benchmarks/packed_models.py": "torch fedcomp.tasks fedcomp.training",
    "benchmarks/zerofl_uploads.py": """torch scipy fedcomp fedcomp.commands fedcomp.data fedcomp.tasks fedcomp.training
        clients.samples""",
    "benchmarks/jumps.py": "numpy fedcomp fedcomp.sync fedcomp.sync.jumps fedcomp.wire",
    "benchmarks/hostile_bodies.py": "numpy fedcomp.sync fedcomp.wire tests",
    "benchmarks/large_server.py": "numpy flwr fedcomp fedcomp.flower fedcomp.flower.records fedcomp.wire",
    "experiments/": """numpy torch flwr filelock jinja2 joblib matplotlib pandas pydantic ray rich seaborn
        tomli_w
        fedcomp.commands fedcomp.compressor fedcomp.core fedcomp.data fedcomp.errors fedcomp.flower fedcomp.flower.split
        fedcomp.gossip fedcomp.methods fedcomp.split fedcomp.sync fedcomp.tasks fedcomp.training
        clients.app clients.devices clients.local clients.plug_ins clients.samples
        server.app server.evaluate server.fit server.settings server.strategies
        deploy.environment deploy.keys deploy.monitor.snapshot
        benchmarks.figure_file benchmarks.netshape.profiles""",
}

LAYERS = {
    # within a room: what a folder may not import
    "fedcomp/entropy/bits/": "fedcomp.entropy.codes fedcomp.entropy.bodies",
    "fedcomp/entropy/codes/": "fedcomp.entropy.bodies",
    "fedcomp/flower/compat/": "fedcomp.flower.client fedcomp.flower.server fedcomp.flower.strategies",
    "fedcomp/flower/client/": "fedcomp.flower.server fedcomp.flower.strategies",
    "fedcomp/flower/server/": "fedcomp.flower.client",
    "fedcomp/flower/strategies/": "fedcomp.flower.client fedcomp.flower.server",
}


def rule_of(name: str) -> str | None:
    """Return the key of the rule for the file `name`, a path from the project's folder; None if it has none."""
    fitting = [key for key in RULES if name == key or (key.endswith("/") and name.startswith(key))]
    return max(fitting, key=len, default=None)


def room_of(module: str) -> str:
    """Return the room of one of our modules: ``fedcomp.core`` of ``fedcomp.core.types``, ``server`` of ``server.app``."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "fedcomp" else parts[0]


@cache
def hidden_modules(package: str) -> frozenset[str]:
    """Return the files and folders of one of our packages that its `__init__` does not import by name."""
    folder = ROOT / package.replace(".", "/")
    init = folder / "__init__.py"
    tree = ast.parse(init.read_text(encoding="utf-8") if init.is_file() else "")
    shown = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    return frozenset(path.stem for path in folder.glob("*") if path.suffix in ("", ".py")) - shown


@cache
def imported_modules(text: str) -> frozenset[str]:
    """Return each module that a source imports, wherever in the file; relative imports begin with a dot."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            hidden = hidden_modules(module)
            found |= {f"{module}.{alias.name}" if alias.name in hidden else module for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in DYNAMIC:
            found |= {str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant)}
    return frozenset(found)


def outside(name: str, text: str) -> set[str]:
    """Return what the file imports from outside its room: third parties by their package, ours by their module."""
    room = room_of(name.removesuffix(".py").replace("/", "."))
    found = set()
    for module in imported_modules(text):
        package = module.split(".")[0]
        if package in OURS:
            if module != room and room_of(module) != room:
                found.add(module)
        elif package not in sys.stdlib_module_names:
            found.add(package or module)
    return found


def forbidden(name: str, text: str) -> set[str]:
    """Return what the file `name` with the source `text` imports without being allowed to."""
    return outside(name, text) - set(RULES[rule_of(name) or "no rule"].split())


def upward(name: str, text: str) -> set[str]:
    """Return what the file imports from a layer of its room that may not be below it."""
    above = [folder for key, folders in LAYERS.items() if name.startswith(key) for folder in folders.split()]
    return {module for module in imported_modules(text) for folder in above if f"{module}.".startswith(f"{folder}.")}


@cache
def sources() -> dict[str, str]:
    """Return the text of every source file by its path from the project's folder."""
    paths = [path for room in OURS for path in sorted((ROOT / room).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_every_file_has_a_rule_and_every_rule_a_file() -> None:
    rules = {name: rule_of(name) for name in sources()}
    assert [name for name, rule in rules.items() if rule is None] == []
    assert set(RULES) - set(rules.values()) == set()


def test_every_import_is_allowed() -> None:
    wrong = {name: forbidden(name, text) for name, text in sources().items()}
    assert {name: modules for name, modules in wrong.items() if modules} == {}


def test_every_allowance_is_used() -> None:
    unused = {key: set(allowed.split()) for key, allowed in RULES.items()}
    for name, text in sources().items():
        unused[str(rule_of(name))] -= outside(name, text)
    assert {key: modules for key, modules in unused.items() if modules} == {}


def test_layers_within_a_room_point_one_way() -> None:
    for key, folders in LAYERS.items():
        assert any(name.startswith(key) for name in sources())
        assert all((ROOT / folder.replace(".", "/")).is_dir() for folder in folders.split())
    wrong = {name: upward(name, text) for name, text in sources().items()}
    assert {name: modules for name, modules in wrong.items() if modules} == {}
    assert upward("fedcomp/entropy/bits/packing.py", "from fedcomp.entropy.codes import huffman") == {
        "fedcomp.entropy.codes.huffman"
    }


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("fedcomp/methods/sign_based.py", "from fedcomp.flower import Ledger", "fedcomp.flower"),
        ("fedcomp/quantize/topk.py", "import rich.table", "rich"),
        ("fedcomp/entropy/bits/packing.py", "from fedcomp.sync.replica import Replica", "fedcomp.sync.replica"),
        ("fedcomp/core/compensated_update.py", "from fedcomp.methods import stc", "fedcomp.methods"),
        ("deploy/keys.py", "from server.settings import Settings", "server.settings"),
        ("fedcomp/entropy/bodies/dense.py", "from fedcomp.core.types import Vector", "fedcomp.core.types"),
        ("fedcomp/entropy/bodies/dense.py", "from fedcomp.core import types", "fedcomp.core.types"),
        ("fedcomp/memory/protocol.py", "from fedcomp import methods", "fedcomp"),
        ("fedcomp/sync/replica.py", "def f():\n    if True:\n        import flwr.common as common", "flwr"),
        ("fedcomp/wire/frame.py", "import importlib\nflwr = importlib.import_module('flwr.app')", "flwr"),
        ("clients/app.py", "from server import settings", "server.settings"),
        ("server/app.py", "import torch", "torch"),
        ("server/app.py", "import tests.reference", "tests"),
        ("server/app.py", "from . import settings", "."),
    ],
)
def test_a_forbidden_import_is_found(name: str, text: str, found: str) -> None:
    assert name in sources()
    assert forbidden(name, text) == {found}


def test_a_room_may_import_its_own_files_and_the_standard_library() -> None:
    text = "import json.decoder, numpy as np\nfrom fedcomp.core.types import Vector\nfrom fedcomp.core import types, Vector"
    assert forbidden("fedcomp/core/checks.py", text) == set()


def test_the_dataset_cards_are_no_package_that_would_shadow_another() -> None:
    assert list((ROOT / "datasets").glob("*.toml"))
    assert not list((ROOT / "datasets").rglob("*.py"))
