"""A study file becomes cells, or one sentence that says where it is wrong."""

import re
from collections import Counter
from pathlib import Path

import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from experiments.configuration import Cell, Value, defaults
from experiments.plan import Plan, read_plan
from experiments.source import StudyError
from fedcomp.flower import LocalGrid

STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies"
RUN = """[run]
clients = 10
clients-per-round = 5
iterations = 10
evaluate-every = 5
local-steps = 1
"""
METHOD = """[[method]]
label = "one"
"""


def study(folder: Path, text: str, name: str = "study.toml") -> Plan:
    """Return the plan in a file with this text."""
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return read_plan(path)


def grid(folder: Path, text: str) -> Plan:
    """Return a plan with this grid, and three methods."""
    methods = "".join(f"[[method]]\nlabel = '{name}'\n" for name in "abc")
    return study(folder, f"title = 'x'\n{RUN}[grid]\n{text}\n{methods}")


def test_cells_are_the_product_of_grid_and_methods_and_the_seed_turns_slowest(tmp_path: Path) -> None:
    plan = grid(tmp_path, "seed = [1, 0]\npartition = ['iid()', 'classes(1)']\nbatch-size = [1, 2]")
    assert plan.axes == ("seed", "partition", "batch-size")
    settings = [(c.settings["seed"], c.settings["partition"], c.settings["batch-size"], c.label) for c in plan.cells]
    assert settings == [
        (seed, partition, size, label)
        for seed in (1, 0)
        for partition in ("iid()", "classes(1)")
        for size in (1, 2)
        for label in "abc"
    ]
    assert len({cell.name for cell in plan.cells}) == 24
    assert plan.describe(plan.cells[4]) == "b, seed 1, partition iid(), batch-size 2"


def test_without_a_grid_each_method_is_a_cell(tmp_path: Path) -> None:
    plan = study(tmp_path, f"title = 'x'\n{RUN}{METHOD}")
    assert [cell.label for cell in plan.cells] == ["one"]
    assert plan.describe(plan.cells[0]) == "one"
    assert (plan.question, plan.targets, plan.notes) == ("", (), ())


def test_a_method_goes_before_the_grid_and_the_grid_before_run(tmp_path: Path) -> None:
    text = f"title = 'x'\n{RUN}seed = 5\nmomentum = 0.5\n[grid]\nseed = [7]\n{METHOD}momentum = 0.9\n"
    settings = study(tmp_path, text).cells[0].settings
    assert (settings["seed"], settings["momentum"]) == (7, 0.9)
    assert settings["weight-decay"] == 0.0  # the app's default


def test_included_settings_and_methods_come_first_and_the_files_own_run_wins(tmp_path: Path) -> None:
    study(tmp_path, "title = 'x'\n" + RUN + METHOD)  # not included
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "run.toml").write_text(RUN + "batch-size = 7\nseed = 1\n")
    (tmp_path / "parts" / "more.toml").write_text("[run]\nseed = 2\nmomentum = 0.1\n[[method]]\nlabel = 'included'\n")
    own = "title = 'x'\ninclude = ['../parts/run.toml', '../parts/more.toml']\n[run]\nmomentum = 0.3\n"
    plan = study(tmp_path, own + METHOD, "studies/study.toml")
    assert [cell.label for cell in plan.cells] == ["included", "one"]
    settings = plan.cells[0].settings
    assert (settings["batch-size"], settings["seed"], settings["momentum"]) == (7, 2, 0.3)
    assert plan.place(plan.cells[0], "seed").source.path.name == "more.toml"


@pytest.mark.parametrize(
    ("iterations", "steps", "rounds", "evaluate_every"),
    [(5000, 1, 5000, 100), (5000, 25, 200, 4), (5000, 400, 13, 1), (401, 400, 2, 1), (1, 400, 1, 1), (1000, 30, 34, 3)],
)
def test_rounds_are_iterations_over_local_steps_rounded_up(
    tmp_path: Path, iterations: int, steps: int, rounds: int, evaluate_every: int
) -> None:
    text = RUN.replace("iterations = 10", f"iterations = {iterations}").replace("local-steps = 1", "")
    text = text.replace("evaluate-every = 5", "evaluate-every = 100")
    (cell,) = study(tmp_path, f"title = 'x'\n{text}local-steps = {steps}\n{METHOD}").cells
    assert cell.rounds == cell.config()["num-rounds"] == rounds
    assert cell.config()["evaluate-every"] == evaluate_every


def sampled(cell: Cell) -> int:
    """Return how many nodes Flower's own FedAvg picks with the cell's config."""
    fraction, least = cell.config()["fraction-train"], cell.config()["min-nodes"]
    strategy = FedAvg(fraction_train=float(fraction), min_train_nodes=1, min_available_nodes=int(least))
    grid = LocalGrid(ClientApp(), cell.clients)
    return len(list(strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid)))


@pytest.mark.parametrize("clients", [5, 10, 20, 50, 100, 200, 400])
@pytest.mark.parametrize("taking_part", [1, 3, 5])
def test_so_many_clients_per_round_are_exactly_those_that_flower_picks(
    tmp_path: Path, clients: int, taking_part: int
) -> None:
    text = RUN.replace("clients = 10", f"clients = {clients}").replace("round = 5", f"round = {taking_part}")
    (cell,) = study(tmp_path, f"title = 'x'\n{text}{METHOD}").cells
    assert cell.clients_per_round == sampled(cell) == taking_part


@pytest.mark.parametrize("fraction", [0.001, 0.07, 0.1, 0.29, 0.57, 0.999, 1.0])
@pytest.mark.parametrize("clients", [1, 3, 100, 300])
def test_a_fraction_is_as_many_clients_as_flower_picks(tmp_path: Path, clients: int, fraction: float) -> None:
    text = RUN.replace("clients = 10", f"clients = {clients}")
    text = text.replace("clients-per-round = 5", f"fraction-train = {fraction}")
    (cell,) = study(tmp_path, f"title = 'x'\n{text}{METHOD}").cells
    assert cell.clients_per_round == sampled(cell)


def test_a_cells_name_changes_with_any_setting_that_counts_and_not_with_their_order(tmp_path: Path) -> None:
    (cell,) = study(tmp_path, f"title = 'x'\n{RUN}{METHOD}").cells
    changed: dict[str, Value] = {key: f"{value}?" for key, value in cell.settings.items()}
    others = {key: Cell(cell.label, {**cell.settings, key: value}) for key, value in changed.items()}
    others["label"] = Cell("two", cell.settings)
    same = {others.pop("device").name, others.pop("fraction-train").name}  # clients-per-round is set
    assert same == {cell.name}
    assert len({cell.name, *(other.name for other in others.values())}) == len(others) + 1
    assert Cell(cell.label, dict(reversed(list(cell.settings.items())))).name == cell.name
    assert re.fullmatch("[0-9a-f]{12}", cell.name)


def test_a_cells_name_does_not_change_from_version_to_version() -> None:
    # a study's results are found again by it: of sha256sum, for the label and the settings as JSON, the first digits
    assert Cell("STC 1/100", {"seed": 0, "learning-rate": 0.04, "uplink": "stc(density=0.01)"}).name == "74f1106ac765"


def test_a_setting_that_the_app_gains_later_leaves_the_names_as_they_are() -> None:
    key, value = "evaluate-every", defaults()["evaluate-every"]
    assert Cell("a", {"seed": 0, "run-name": defaults()["run-name"]}).name == Cell("a", {"seed": 0}).name
    assert Cell("a", {"seed": 0, "run-name": "x"}).name != Cell("a", {"seed": 0}).name
    assert Cell("a", {"seed": 0, key: value}).name != Cell("a", {"seed": 0}).name, "it counts, whatever the default"


BASE = f"title = 'x'\n{RUN}{METHOD}"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (f"titel = 'y'\n{BASE}", 1, "unknown key 'titel'; there are: title, question, targets, notes, include, run, "),
        (BASE.replace("[run]", "[run]\nsampling-decay = 0.1"), 3, "sampling-decay stays 0 in a study"),
        (
            f"{BASE}[grid]\nweight-decay = [0.1, 0.2]",
            11,
            r"weight-decay is the same for all cells, and stands in \[run\]",
        ),
        (f"{BASE}[grid]\ndevice = ['cpu']", 11, r"device is the same for all cells, and stands in \[run\]"),
        (f"{BASE}weight-decay = 0.1", 10, r"weight-decay is the same for all cells, and stands in \[run\]"),
        (BASE.replace("[run]", "[run]\nclient = 3"), 3, r"unknown key 'client' in \[run\]; there are: .*clients, "),
        (f"{BASE}[grid]\nsede = [1]", 11, r"unknown key 'sede' in \[grid\]; there are: .*seed"),
        (f"{BASE}[grid]\nlabel = ['a']", 11, r"unknown key 'label' in \[grid\]"),
        (f"{BASE}upload = 'stc()'", 10, r"unknown key 'upload' in \[\[method\]\]; there are: label, .*uplink"),
        (f"{BASE}\n[methods]", 11, "unknown key 'methods'; there are: .*method"),
        (
            BASE.replace("[run]", "[run]\nnum-rounds = 3"),
            3,
            "num-rounds is what a study sets itself; there are: .*iter",
        ),
        (f"{BASE}[grid]\nruns-dir = ['a']", 11, "runs-dir is what a study sets itself"),
        (f"{BASE}resume = true", 10, "resume is what a study sets itself"),
        (f"{BASE}uplink = 'stk()'", 10, "uplink is 'stk\\(\\)'; unknown method 'stk'; there are: .*stc"),
        (f"{BASE}strategy = 'fedavgg'", 10, "strategy is 'fedavgg'; .*there are: .*fedavg"),
        (f"{BASE}partition = 'klasses(2)'", 10, "partition is 'klasses\\(2\\)'; .*there are: .*classes"),
        (f"{BASE}[grid]\nseed = 1", 11, "seed is 1; a list of values is needed"),
        (f"{BASE}[grid]\nseed = []", 11, "seed is \\[\\]; a list of values is needed"),
        (f"{BASE}[grid]\nseed = [0, true]", 11, "seed is True; a whole number, 0 or more, is needed"),
        (f"{BASE}[grid]\nclients = [\n10,\ntrue\n]", 13, "clients is True; a whole number, 1 or more, is needed"),
        (f"{BASE}[grid]\nclients = [\n10, 20,\n'30']", 13, "clients is '30'; a whole number, 1 or more, is needed"),
        (f"{BASE}[grid]\nseed = [0, 1,\n2, 1]", 12, "seed holds 1 twice; each value is needed once"),
        (f"{BASE}[grid]\nlearning-rate = [1,\n1.0]", 12, "learning-rate holds 1.0 twice"),
        (f"{BASE}[[method]]\nlabel = 'one'", 11, "label 'one' is there twice; each method needs its own"),
        (f"{BASE}[[method]]\nuplink = 'stc()'", 10, "label is missing; a text is needed"),
        (f"{BASE}[[method]]\nlabel = ''", 11, "label is ''; a text is needed"),
        (f"{BASE}seed = 1\n[grid]\nseed = [0]", 12, r"seed is in \[grid\] and in a \[\[method\]\]; one of them must"),
        (
            BASE.replace("iterations = 10\n", ""),
            2,
            r"iterations is missing; \[run\], \[grid\] or the \[\[method\]\] must",
        ),
        (BASE.replace("local-steps = 1\n", ""), 2, "local-steps is missing"),
        (BASE.replace("evaluate-every = 5\n", ""), 2, "evaluate-every is missing"),
        (BASE.replace("clients = 10\n", ""), 2, "clients is missing"),
        (BASE.replace("iterations = 10", "iterations = 1e3"), 5, "iterations is 1000.0; a whole number, 1 or more"),
        (BASE.replace("local-steps = 1", "local-steps = 0"), 7, "local-steps is 0; a whole number, 1 or more"),
        (
            BASE.replace("round = 5", "round = 11"),
            4,
            "clients-per-round is 11 of 10 clients; no more than there are can",
        ),
        (f"{BASE}fraction-train = 0.5", 4, "clients-per-round and fraction-train are both set; one must decide"),
        (f"{BASE}learning-rate = [0.1, 0.2]", 10, r"learning-rate is a list; .*lists stand in \[grid\]"),
        (f"{BASE}batch-size = 2000-01-01", 10, "batch-size is datetime.date.*; a whole number"),
        (BASE.replace("title = 'x'\n", ""), None, "title is missing; a text is needed"),
        (BASE.replace("'x'", "3"), 1, "title is 3; a text is needed"),
        (BASE.replace(METHOD, ""), None, r"no \[\[method\]\]; at least one is needed"),
        (f"targets = [0.8,\n80]\n{BASE}", 2, "targets holds 80; a list of numbers above 0 and at most 1 is needed"),
        (f"include = [\n'none.toml'\n]\n{BASE}", 2, "no file .*none.toml; a TOML file to include is needed"),
        (f"title = 'x'\nrun = 3\n{METHOD}", 2, r"run is 3; a table \[run\] is needed"),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_what_is_possible(
    tmp_path: Path, text: str, line: int | None, says: str
) -> None:
    with pytest.raises(StudyError, match=says) as caught:
        study(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(f"{tmp_path / 'study.toml'}{'' if line is None else f', line {line}'}: ")
    assert "\n" not in said


def test_the_line_of_one_bad_entry_among_many_is_named(tmp_path: Path) -> None:
    uplinks = "uplink = [  # all\n'stc(density=0.1)',\n\n'stc(density=0.2)', # 'stc(density=1.5)'\n'stc(density=1.5)']"
    with pytest.raises(StudyError, match=r"line 13: uplink is 'stc\(density=1.5\)'; .*density"):
        grid(tmp_path, uplinks)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("title = 'x'\nrun = { clients = 10, iterations = 10, model = 'mlp', sede = 1 }\n", 2),
        ("title = 'x'\nrun.clients = 10\n# run.sede = 1\nrun.sede = 1\n", 4),
        ("title = 'x'\nrun.clients = 10\n'run' . \"sede\" = 1\n", 3),
        ("title = 'x'\n[run]  # [grid]\n# sede = 1\nclients = 1 # sede = 1\nsede = 1\n", 5),
        ("question = '''\n[run]\nsede = 1\n'''\ntitle = 'x'\n['run']\nsede = 1\n", 7),
        ('title = "x"\nnotes = ["""\nsede = 1\n""", "sede = 1"]\n[ run ]\nsede = 1\n', 6),
    ],
)
def test_no_way_to_write_a_file_misleads_the_line(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(StudyError, match=rf"study.toml, line {line}: unknown key 'sede' in \[run\]"):
        study(tmp_path, text + METHOD)


def test_a_mistake_in_an_included_file_is_named_there(tmp_path: Path) -> None:
    include = f"title = 'x'\ninclude = ['part.toml']\n{RUN}{METHOD}"
    for text, says in (
        ("\n[run]\nsede = 1", r"part.toml, line 3: unknown key 'sede' in \[run\]"),
        ("title = 'y'", "part.toml, line 1: unknown key 'title'; there are: run, method"),
        ("[[method]]\nlabel = 'a'\n\ndownlink = 'stc(density=2)'", "part.toml, line 4: downlink is 'stc"),
        ("[run]\nseed = -1", "part.toml, line 2: seed is -1; a whole number, 0 or more, is needed"),
    ):
        (tmp_path / "part.toml").write_text(text)
        with pytest.raises(StudyError, match=says):
            study(tmp_path, include)
    (tmp_path / "part.toml").write_text(METHOD)
    with pytest.raises(StudyError, match="study.toml, line 10: label 'one' is there twice"):
        study(tmp_path, include)


FILES = sorted(path for path in STUDIES.glob("**/*.toml") if path.parent.name != "parts")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_study_can_be_read(path: Path) -> None:
    plan = read_plan(path)
    seeds = Counter(cell.settings["seed"] for cell in plan.cells)
    assert len(set(seeds.values())) == 1  # as many cells with each seed
    assert plan.question
    assert all(cell.clients_per_round == sampled(cell) for cell in plan.cells)
