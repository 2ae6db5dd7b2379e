"""A study file becomes cells, or one sentence that names the file and the key that is wrong."""

import re
from collections import Counter
from pathlib import Path

import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from experiments.configuration import Cell, Value, defaults
from experiments.plan import StudyError, StudyPlan, read_plan
from fedcomp.flower import LocalGrid
from tests.experiments.cells import METHOD, RUN, plan

STUDIES = Path(__file__).parents[2] / "experiments" / "studies"


def grid(folder: Path, text: str) -> StudyPlan:
    """Return a plan with this grid, and three methods."""
    methods = "".join(f"[[method]]\nlabel = '{name}'\n" for name in "abc")
    return plan(folder, f"title = 'x'\n{RUN}[grid]\n{text}\n{methods}")


def test_cells_are_the_product_of_grid_and_methods_and_the_seed_varies_slowest(tmp_path: Path) -> None:
    found = grid(tmp_path, "seed = [1, 0]\npartition = ['iid()', 'classes(1)']\nbatch-size = [1, 2]")
    settings = [(c.settings["seed"], c.settings["partition"], c.settings["batch-size"], c.label) for c in found.cells]
    assert settings == [
        (seed, partition, size, label)
        for seed in (1, 0)
        for partition in ("iid()", "classes(1)")
        for size in (1, 2)
        for label in "abc"
    ]
    assert len({cell.name for cell in found.cells}) == 24
    assert found.describe(found.cells[4]) == "b, seed 1, partition iid(), batch-size 2"


def test_without_a_grid_each_method_is_a_cell(tmp_path: Path) -> None:
    found = plan(tmp_path, f"title = 'x'\n{RUN}{METHOD}")
    assert [cell.label for cell in found.cells] == ["one"]
    assert found.describe(found.cells[0]) == "one"


def test_the_settings_that_a_study_may_have_are_named_in_alphabetical_order(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="run-name is decided by the study itself") as caught:
        plan(tmp_path, f"title = 'x'\n{RUN}run-name = 'mine'\n{METHOD}")
    names = str(caught.value).rsplit("there are: ", 1)[1].split(", ")
    assert names == sorted(names)
    assert {"clients", "learning-rate", "uplink"} <= set(names)


def test_a_method_takes_precedence_over_the_grid_and_the_grid_over_run(tmp_path: Path) -> None:
    text = f"title = 'x'\n{RUN}seed = 5\nmomentum = 0.5\n[grid]\nseed = [7]\n{METHOD}momentum = 0.9\n"
    settings = plan(tmp_path, text).cells[0].settings
    assert (settings["seed"], settings["momentum"]) == (7, 0.9)
    assert settings["weight-decay"] == 0.0  # the app's default


def test_the_files_own_run_takes_precedence_over_included_ones(tmp_path: Path) -> None:
    plan(tmp_path, "title = 'x'\n" + RUN + METHOD)  # not included
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "run.toml").write_text(RUN + "batch-size = 7\nseed = 1\n")
    (tmp_path / "parts" / "more.toml").write_text("[run]\nseed = 2\nmomentum = 0.1\n[[method]]\nlabel = 'included'\n")
    own = "title = 'x'\ninclude = ['../parts/run.toml', '../parts/more.toml']\n[run]\nmomentum = 0.3\n"
    found = plan(tmp_path, own + METHOD, "studies/study.toml")
    assert [cell.label for cell in found.cells] == ["included", "one"]
    settings = found.cells[0].settings
    assert (settings["batch-size"], settings["seed"], settings["momentum"]) == (7, 2, 0.3)
    with pytest.raises(StudyError, match=r"more\.toml: run\.seed is 2; too odd"):
        raise found.error(found.cells[0], "seed", "too odd")


@pytest.mark.parametrize(
    ("iterations", "steps", "rounds", "evaluate_every"),
    [(5000, 1, 5000, 100), (5000, 25, 200, 4), (5000, 400, 13, 1), (401, 400, 2, 1), (1, 400, 1, 1), (1000, 30, 34, 3)],
)
def test_rounds_are_iterations_over_local_steps_rounded_up(
    tmp_path: Path, iterations: int, steps: int, rounds: int, evaluate_every: int
) -> None:
    text = RUN.replace("iterations = 10", f"iterations = {iterations}").replace("local-steps = 1", "")
    text = text.replace("evaluate-every = 5", "evaluate-every = 100")
    (cell,) = plan(tmp_path, f"title = 'x'\n{text}local-steps = {steps}\n{METHOD}").cells
    assert cell.rounds == cell.config()["num-rounds"] == rounds
    assert cell.config()["evaluate-every"] == evaluate_every


def sampled(cell: Cell) -> int:
    """Return how many nodes Flower's own FedAvg picks with the cell's config."""
    fraction, least = cell.config()["fraction-train"], cell.config()["min-nodes"]
    strategy = FedAvg(fraction_train=float(fraction), min_train_nodes=1, min_available_nodes=int(least))
    grid = LocalGrid(ClientApp(), cell.clients)
    return len(list(strategy.configure_train(1, ArrayRecord(), ConfigRecord(), grid)))


@pytest.mark.parametrize("clients", [5, 10, 20, 50, 100, 200, 400])
@pytest.mark.parametrize("per_round", [1, 3, 5])
def test_flower_picks_exactly_clients_per_round(tmp_path: Path, clients: int, per_round: int) -> None:
    text = RUN.replace("clients = 10", f"clients = {clients}").replace("round = 5", f"round = {per_round}")
    (cell,) = plan(tmp_path, f"title = 'x'\n{text}{METHOD}").cells
    assert cell.clients_per_round == sampled(cell) == per_round


@pytest.mark.parametrize("fraction", [0.001, 0.07, 0.1, 0.29, 0.57, 0.999, 1.0])
@pytest.mark.parametrize("clients", [1, 3, 100, 300])
def test_a_fraction_gives_as_many_clients_as_flower_picks(tmp_path: Path, clients: int, fraction: float) -> None:
    text = RUN.replace("clients = 10", f"clients = {clients}")
    text = text.replace("clients-per-round = 5", f"fraction-train = {fraction}")
    (cell,) = plan(tmp_path, f"title = 'x'\n{text}{METHOD}").cells
    assert cell.clients_per_round == sampled(cell)


def test_a_cells_name_depends_on_every_setting_that_counts_and_not_on_their_order(tmp_path: Path) -> None:
    (cell,) = plan(tmp_path, f"title = 'x'\n{RUN}{METHOD}").cells
    changed: dict[str, Value] = {key: f"{value}?" for key, value in cell.settings.items()}
    others = {key: Cell(cell.label, {**cell.settings, key: value}) for key, value in changed.items()}
    others["label"] = Cell("two", cell.settings)
    same = {others.pop("device").name, others.pop("fraction-train").name}  # clients-per-round is set
    assert same == {cell.name}
    assert len({cell.name, *(other.name for other in others.values())}) == len(others) + 1
    assert Cell(cell.label, dict(reversed(list(cell.settings.items())))).name == cell.name
    assert re.fullmatch("[0-9a-f]{12}", cell.name)


def test_a_cells_name_does_not_change_from_version_to_version() -> None:
    # results are found by it: the first digits of sha256sum of the label and the settings as JSON
    assert Cell("STC 1/100", {"seed": 0, "learning-rate": 0.04, "uplink": "stc(density=0.01)"}).name == "74f1106ac765"


def test_a_setting_that_the_app_gains_later_changes_no_names() -> None:
    key, value = "evaluate-every", defaults()["evaluate-every"]
    assert Cell("a", {"seed": 0, "run-name": defaults()["run-name"]}).name == Cell("a", {"seed": 0}).name
    assert Cell("a", {"seed": 0, "run-name": "x"}).name != Cell("a", {"seed": 0}).name
    assert Cell("a", {"seed": 0, key: value}).name != Cell("a", {"seed": 0}).name, "it always counts"


BASE = f"title = 'x'\n{RUN}{METHOD}"


@pytest.mark.parametrize(
    ("text", "key", "names"),
    [
        # the form of the file
        (f"titel = 'y'\n{BASE}", "titel ", "title"),
        (f"{BASE}\n[methods]", "methods ", "method"),
        (BASE.replace("title = 'x'\n", ""), "title ", "missing"),
        (BASE.replace("'x'", "3"), "title is 3; ", "string"),
        (BASE.replace("'x'", "' '"), "title is ' '; ", ""),
        (BASE.replace(METHOD, ""), "no ", "method"),
        (f"targets = [0.8,\n80]\n{BASE}", r"targets\[1\] is 80; ", "1"),
        (f"include = [\n'none.toml'\n]\n{BASE}", "No such file", "study file"),
        (f"title = 'x'\nrun = 3\n{METHOD}", "run is 3; ", "dict"),
        # unknown keys, and keys in the wrong place
        (BASE.replace("[run]", "[run]\nclient = 3"), r"run\.client ", "clients, "),
        (f"{BASE}[grid]\nsede = [1]", r"grid\.sede ", "seed"),
        (f"{BASE}[grid]\nlabel = ['a']", r"grid\.label ", "seed"),
        (f"{BASE}upload = 'stc()'", r"method\[0\]\.upload ", "label, .*uplink"),
        (BASE.replace("[run]", "[run]\nsampling-decay = 0.1"), r"run\.sampling-decay ", "0"),
        (BASE.replace("[run]", "[run]\nnum-rounds = 3"), r"run\.num-rounds ", "iterations"),
        (f"{BASE}[grid]\nruns-dir = ['a']", r"grid\.runs-dir ", ""),
        (f"{BASE}resume = true", r"method\[0\]\.resume ", ""),
        (f"{BASE}split = 'split()'", r"method\[0\]\.split is no setting of a study", "split learning"),
        (f"{BASE}[grid]\nsplit-layer = [1, 2]", r"grid\.split-layer is no setting of a study", "split learning"),
        (f"{BASE}[grid]\nweight-decay = [0.1, 0.2]", r"grid\.weight-decay ", r"\[run\]"),
        (f"{BASE}[grid]\nclip-norm = [0.0, 0.1]", r"grid\.clip-norm ", r"a \[\[method\]\] for each of its values"),
        (f"{BASE}[grid]\niterations = [4, 8]", r"grid\.iterations ", r"a \[\[method\]\] for each of its values"),
        (f"{BASE}[grid]\ndevice = ['cpu']", r"grid\.device ", r"\[run\]"),
        (f"{BASE}weight-decay = 0.1", r"method\[0\]\.weight-decay ", r"\[run\]"),
        (f"{BASE}seed = 1\n[grid]\nseed = [0]", r"grid\.seed ", r"\[\[method\]\]"),
        (f"{BASE}fraction-train = 0.5", r"run\.clients-per-round .*fraction-train ", ""),
        # values
        (f"{BASE}uplink = 'stk()'", r"method\[0\]\.uplink is 'stk\(\)'; ", "stc"),
        (f"{BASE}strategy = 'fedavgg'", r"method\[0\]\.strategy is 'fedavgg'; ", "fedavg"),
        (f"{BASE}partition = 'klasses(2)'", r"method\[0\]\.partition is 'klasses\(2\)'; ", "classes"),
        (f"{BASE}[grid]\nseed = 1", r"grid\.seed is 1; ", "list"),
        (f"{BASE}[grid]\nseed = []", r"grid\.seed is \[\]; ", "1"),
        (f"{BASE}[grid]\nseed = [0, true]", r"grid\.seed is True; ", "0"),
        (f"{BASE}[grid]\nclients = [10, 20, '30']", r"grid\.clients is '30'; ", "1"),
        (f"{BASE}[grid]\nlearning-rate = [1, 2, 1.0]", r"grid\.learning-rate\[2\] is 1\.0 ", ""),
        (
            f"{BASE}[grid]\npartition = ['dirichlet(1)', 'iid()', 'dirichlet(alpha=1.0)']",
            r"grid\.partition is 'dirichlet\(alpha=1\.0\)'; ",
            r"'dirichlet\(1\)' means the same",
        ),
        (
            f"{BASE}[grid]\nfraction-train = [0.14, 0.29, 0.1]".replace("clients-per-round = 5\n", ""),
            r"grid\.fraction-train is 0\.1; ",
            r"0\.14 means the same",
        ),
        (f"{BASE}[tune]\npartition = ['iid()', 'iid( )']", r"tune\.partition is 'iid\( \)'; ", r"'iid\(\)'"),
        (f"{BASE}learning-rate = [0.1, 0.2]", r"method\[0\]\.learning-rate ", r"list.*\[grid\]"),
        (f"{BASE}batch-size = 2000-01-01", r"method\[0\]\.batch-size is datetime.date", ""),
        (f"{BASE}[[method]]\nlabel = 'one'", r"method\[1\]\.label is 'one'; ", ""),
        (BASE.replace('"one"', r'"a\rb"'), r"method\[0\]\.label is 'a\\rb'; ", "control characters"),
        (f'{BASE}[grid]\npartition = ["iid()", "classes(\\r2)"]', r"grid\.partition is 'classes\(\\r2\)'; ", "control"),
        (f"{BASE}[[method]]\nuplink = 'stc()'", r"method\[1\]\.label is None; ", ""),
        (BASE.replace("iterations = 10\n", ""), r"run\.iterations is missing", ""),
        (BASE.replace("iterations = 10", "iterations = 1e3"), r"run\.iterations is 1000\.0; ", "1"),
        (BASE.replace("local-steps = 1", "local-steps = 0"), r"run\.local-steps is 0; ", "1"),
        (BASE.replace("round = 5", "round = 11"), r"run\.clients-per-round is 11; ", "10"),
    ],
)
def test_a_bad_file_is_refused_with_its_key_and_what_is_possible(
    tmp_path: Path, text: str, key: str, names: str
) -> None:
    with pytest.raises(StudyError, match=f": {key}.*{names}") as caught:
        plan(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[run]\nsede = 1", r"run\.sede "),
        ("title = 'y'", "title "),
        ("[[method]]\nlabel = 'a'\n\ndownlink = 'stc(density=2)'", r"method\[0\]\.downlink is 'stc"),
        ("[run]\nseed = -1", r"run\.seed is -1; "),
    ],
)
def test_an_error_in_an_included_file_names_that_file(tmp_path: Path, text: str, key: str) -> None:
    (tmp_path / "part.toml").write_text(text)
    with pytest.raises(StudyError, match=rf"part\.toml: {key}"):
        plan(tmp_path, f"title = 'x'\ninclude = ['part.toml']\n{RUN}{METHOD}")


@pytest.mark.parametrize("data", [b"title = 'x", b"\xff"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "study.toml").write_bytes(data)
    with pytest.raises(StudyError, match=r"study\.toml: .*TOML"):
        read_plan(tmp_path / "study.toml")


FILES = sorted(path for path in STUDIES.glob("**/*.toml") if path.parent.name != "parts")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_study_can_be_read(path: Path) -> None:
    found = read_plan(path)
    seeds = Counter(cell.settings["seed"] for cell in found.cells)
    assert len(set(seeds.values())) == 1  # each seed has the same number of cells
    assert found.study.question
    samplings = {(cell.clients, cell.clients_per_round, cell.config()["fraction-train"]): cell for cell in found.cells}
    assert all(cell.clients_per_round == sampled(cell) for cell in samplings.values())
