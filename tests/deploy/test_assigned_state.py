"""Real SuperNodes whose app assigns ``Context.state``: they follow each version, and train as nodes of one process."""

import json
from pathlib import Path

import pytest

from deploy.federation import Federation
from fedcomp.flower import LocalGrid
from tests.deploy.assigning_app.app import NODES, client_app, trained
from tests.deploy.live_federation import app_of

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning"),  # Flower's bundling uses it
]
PATIENCE_S = 300.0


@pytest.mark.nightly
def test_the_records_of_a_node_survive_an_app_that_assigns_its_state(tmp_path: Path) -> None:
    book = tmp_path / "book.json"
    app = app_of(Path(__file__).parent / "assigning_app", "app:server_app", "app:client_app", tmp_path / "app")
    with Federation(tmp_path / "federation", NODES, env={"ASSIGNING_BOOK": str(book)}) as federation:
        federation.start()
        run = federation.run(app, {})
        assert run.wait(PATIENCE_S) == "finished:completed", run.log()
    found = json.loads(book.read_text())
    assert found["refused"] == 0
    local = trained(LocalGrid(client_app, NODES))
    assert found["w"] == pytest.approx(sorted(local.arrays["w"].numpy().tolist()), abs=1e-5)
