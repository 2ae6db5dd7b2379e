"""Which run configs are settings, and which are refused with which sentence."""

import pytest

from server.settings import Settings, SettingsError

Config = dict[str, object]


def test_the_defaults_of_the_app_are_valid_and_come_back_unchanged(config: Config) -> None:
    assert Settings.from_config(config).to_config() == config


def test_every_setting_has_a_default_and_every_default_is_a_setting(config: Config) -> None:
    assert {name.replace("_", "-") for name in Settings.model_fields} == set(config)


def test_an_unknown_setting_is_refused_with_the_list_of_known_ones(config: Config) -> None:
    with pytest.raises(SettingsError, match=r"^unknown setting 'rounds'; there are: batch-size, .*num-rounds"):
        Settings.from_config(config | {"rounds": 3})


def test_a_missing_setting_is_refused(config: Config) -> None:
    del config["seed"]
    with pytest.raises(SettingsError, match="^setting 'seed' is missing"):
        Settings.from_config(config)


@pytest.mark.parametrize(
    ("key", "value", "needed"),
    [
        ("num-rounds", 0, "from 1 to"),
        ("num-rounds", 2.0, "whole number"),
        ("num-rounds", True, "whole number"),
        ("num-rounds", "3", "whole number"),
        ("fraction-train", 0.0, "above 0 and at most 1"),
        ("fraction-train", 1.5, "above 0 and at most 1"),
        ("fraction-train", True, "above 0 and at most 1"),
        ("sampling-decay", -0.1, "from 0 to"),
        ("fraction-evaluate", -0.1, "0 to 1"),
        ("learning-rate", float("nan"), "above 0"),
        ("learning-rate", float("inf"), "above 0"),
        ("momentum", "0.9", "0 to 1"),
        ("device", "tpu", "auto, cpu, cuda, cuda:<number> or mps"),
        ("resume", 1, "true or false"),
        ("run-name", "../elsewhere", "without folders"),
        ("run-name", "..", "without folders"),
        ("run-name", "mine\n", "without folders"),
        ("runs-dir", "", "folder"),
        ("dataset", "a/b", "card"),
        ("weighting", "plain", "'examples' or 'uniform'"),
        ("uplink", "stc(density=2)", "density is 2"),
        ("uplink", "nothing()", "'nothing'; .*dense, .*stc"),
        ("downlink", "stc(", "name"),
        ("downlink", 3, "text"),
        ("partition", "classes(0)", "1"),
        ("partition", "even", "'even'; .*iid"),
        ("strategy", "fedsgd", "'fedsgd'; .*fedavg"),
        ("strategy", "fedavgm(server_momentum=3)", "server_momentum is 3; .*0 .*0.9999"),
    ],
)
def test_an_impossible_value_is_refused_in_one_line_that_says_what_is_needed(
    config: Config, key: str, value: object, needed: str
) -> None:
    with pytest.raises(SettingsError, match=needed) as caught:
        Settings.from_config(config | {key: value})
    assert str(caught.value).startswith(f"{key} is {value!r}; ")
    assert "\n" not in str(caught.value)


def test_an_integer_is_accepted_where_a_number_is_needed(config: Config) -> None:
    settings = Settings.from_config(config | {"learning-rate": 1})
    assert settings.learning_rate == 1.0
    assert isinstance(settings.learning_rate, float)


@pytest.mark.parametrize("key", ["run-name", "split-layer", "data-dir", "runs-dir"])
def test_a_whole_number_is_accepted_where_a_text_is_needed(config: Config, key: str) -> None:
    assert Settings.from_config(config | {key: 7}).to_config()[key] == "7"
    for value in (True, 0.5):
        with pytest.raises(SettingsError, match=f"^{key} is {value}; a .* is needed$"):
            Settings.from_config(config | {key: value})


def test_resuming_needs_the_name_of_the_run(config: Config) -> None:
    with pytest.raises(SettingsError, match="run-name"):
        Settings.from_config(config | {"resume": True})


def test_adam_needs_a_momentum_below_1(config: Config) -> None:
    with pytest.raises(SettingsError, match=r"momentum is 1\.0; with the optimizer 'adam', a number below 1"):
        Settings.from_config({**config, "optimizer": "adam", "momentum": 1.0})
    assert Settings.from_config({**config, "optimizer": "sgd", "momentum": 1.0}).momentum == 1
