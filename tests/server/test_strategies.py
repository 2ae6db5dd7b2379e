"""Which texts name a strategy, and what is refused."""

import pytest
from flwr.serverapp.strategy import FedAdam, FedAvgM, Strategy

from fedcomp.flower import FedAMS, QrdaAdagrad
from server.strategies import STRATEGIES, parse_strategy


def test_a_strategy_gets_its_own_settings_and_the_common_ones() -> None:
    strategy = parse_strategy("fedavgm(server_momentum=0.5, server_learning_rate=2)")(fraction_train=0.25)
    assert isinstance(strategy, FedAvgM)
    assert (strategy.server_momentum, strategy.server_learning_rate, strategy.fraction_train) == (0.5, 2.0, 0.25)


def test_a_name_alone_has_flowers_own_defaults() -> None:
    strategy = parse_strategy("fedadam")()
    assert isinstance(strategy, FedAdam)
    assert strategy.beta_1 == FedAdam().beta_1


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_takes_what_all_share_and_every_setting_in_the_table(name: str) -> None:
    common = {"fraction_train": 0.5, "fraction_evaluate": 0.5, "min_train_nodes": 1, "min_evaluate_nodes": 1}
    assert isinstance(parse_strategy(name)(**common, min_available_nodes=2), Strategy)
    _, settings = STRATEGIES[name]
    counts = ("num_malicious_nodes", "num_nodes_to_select", "interval", "until")
    examples: dict[str, object] = {**dict.fromkeys(counts, 1), "center": "zero"}
    text = ", ".join(f"{key}={examples.get(key, 0.25)!r}" for key in settings)
    assert isinstance(parse_strategy(f"{name}({text})")(), Strategy)


def test_the_strategies_of_the_compression_papers_have_names_too() -> None:
    fedams = parse_strategy("fedams(eta=0.01, eps=1e-4)")(fraction_train=0.25)
    assert isinstance(fedams, FedAMS)
    assert (fedams.eta, fedams.eps, fedams.fraction_train) == (0.01, 1e-4, 0.25)
    dual = parse_strategy("qrdaadagrad(l1_strength=0.1, center='zero')")()
    assert isinstance(dual, QrdaAdagrad)
    assert (dual.l1_strength, dual.center) == (0.1, "zero")


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("fedavgm(0.9)", "server_learning_rate, server_momentum"),
        ("fedavg(server_momentum=0.9)", "'server_momentum'; .*no settings"),
        ("fedavg(fraction_train=1)", "'fraction_train'"),
        ("krum(num_malicious_nodes=-1)", "num_malicious_nodes is -1; .*0"),
        ("krum(num_malicious_nodes=1.5)", r"num_malicious_nodes is 1\.5; .*0"),
        ("fedavgm(server_momentum='x')", "server_momentum is 'x'; .*0 .*0.9999"),
        ("fedtrimmedavg(beta=0.5)", r"beta.* \[?0"),
        ("fedadam(eta_l=0.1)", "unknown setting 'eta_l'; fedadam takes: eta, tau, beta_1, beta_2"),
        ("fedams(beta_1=1)", "beta_1 is 1; .*0 .*0.9999"),
        ("qrdaadagrad(center='middle')", "center is 'middle'; .*'initial'.*'zero'"),
        ("majorityvote(step=0)", "step is 0; .*0"),
        ("majorityvote(step='x')", "step"),
        ("__import__('os')", "'__import__'; .*fedavg"),
    ],
)
def test_a_wrong_text_is_refused_with_what_is_needed(text: str, needed: str) -> None:
    with pytest.raises(ValueError, match=needed):
        parse_strategy(text)
