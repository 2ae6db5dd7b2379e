import pytest
from flwr.serverapp.strategy import FedAdam, FedAvgM, Strategy

from server.strategies import STRATEGIES, parse_strategy


def test_a_strategy_gets_its_own_settings_and_the_common_ones() -> None:
    strategy = parse_strategy("fedavgm(server_momentum=0.5, server_learning_rate=2)").build(fraction_train=0.25)
    assert isinstance(strategy, FedAvgM)
    assert (strategy.server_momentum, strategy.server_learning_rate, strategy.fraction_train) == (0.5, 2.0, 0.25)


def test_a_name_alone_has_flowers_own_defaults() -> None:
    strategy = parse_strategy("fedadam").build()
    assert isinstance(strategy, FedAdam)
    assert strategy.beta_1 == FedAdam().beta_1


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_can_be_built_with_what_all_share(name: str) -> None:
    common = {"fraction_train": 0.5, "fraction_evaluate": 0.5, "min_train_nodes": 1, "min_evaluate_nodes": 1}
    assert isinstance(parse_strategy(name).build(**common, min_available_nodes=2), Strategy)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_setting_in_the_table_is_one_that_flower_takes(name: str) -> None:
    make, rules = STRATEGIES[name]
    values = {key: rule(1) if key.startswith("num_") else rule(0.25) for key, rule in rules.items()}
    make(**values)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fedavgm(0.9)", "a setting without a name; fedavgm takes: server_learning_rate, server_momentum"),
        ("fedavg(server_momentum=0.9)", "an unknown setting 'server_momentum'; fedavg takes: no settings"),
        ("fedavg(fraction_train=1)", "an unknown setting 'fraction_train'"),
        ("krum(num_malicious_nodes=-1)", "num_malicious_nodes of krum is -1; a whole number, 0 or more, is needed"),
        ("__import__('os')", "unknown strategy '__import__'"),
    ],
)
def test_a_wrong_text_is_refused_with_what_is_possible(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(").replace(")", r"\)")):
        parse_strategy(text)
