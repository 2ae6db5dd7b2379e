from dataclasses import fields

import pytest

from server.settings import Settings, SettingsError

Config = dict[str, object]


def test_the_defaults_of_the_app_are_valid_and_come_back_unchanged(config: Config) -> None:
    assert Settings.from_config(config).to_config() == config


def test_every_setting_has_a_default_and_every_default_is_a_setting(config: Config) -> None:
    assert {item.name.replace("_", "-") for item in fields(Settings)} == set(config)


def test_an_unknown_setting_is_refused_with_those_that_there_are(config: Config) -> None:
    with pytest.raises(SettingsError, match=r"^unknown setting 'rounds'; there are: batch-size, .*num-rounds"):
        Settings.from_config(config | {"rounds": 3})


def test_a_missing_setting_is_refused(config: Config) -> None:
    del config["seed"]
    with pytest.raises(SettingsError, match="^setting 'seed' is missing"):
        Settings.from_config(config)


@pytest.mark.parametrize(
    ("key", "value", "needed"),
    [
        ("num-rounds", 0, "a whole number, 1 or more"),
        ("num-rounds", 2.0, "a whole number"),
        ("num-rounds", True, "a whole number"),
        ("num-rounds", "3", "a whole number"),
        ("fraction-train", 0.0, "a number above 0 and at most 1"),
        ("fraction-train", 1.5, "a number above 0 and at most 1"),
        ("sampling-decay", -0.1, "a number 0 or more is needed"),
        ("fraction-evaluate", -0.1, "a number 0 or more and at most 1"),
        ("learning-rate", float("nan"), "a number above 0"),
        ("learning-rate", float("inf"), "a number above 0"),
        ("momentum", "0.9", "a number 0 or more"),
        ("device", "tpu", "auto, cpu, cuda, cuda:<number> or mps"),
        ("resume", 1, "true or false"),
        ("run-name", "../elsewhere", "a plain name"),
        ("run-name", "..", "a plain name"),
        ("runs-dir", "", "a folder"),
        ("dataset", "a/b", "the name of a card"),
        ("uplink", "stc(density=2)", "density"),
        ("uplink", "nothing()", "unknown method 'nothing'; there are: .*dense, .*stc"),
        ("downlink", "stc(", "name"),
        ("downlink", 3, "a text"),
        ("partition", "classes(0)", "at least 1"),
        ("partition", "even", "unknown partition scheme 'even'; there are: .*iid"),
        ("strategy", "fedsgd", "unknown strategy 'fedsgd'; there are: .*fedavg"),
        ("strategy", "fedavgm(server_momentum=3)", "server_momentum of fedavgm is 3; a number"),
    ],
)
def test_an_impossible_value_is_refused_in_one_line_that_says_what_is_possible(
    config: Config, key: str, value: object, needed: str
) -> None:
    with pytest.raises(SettingsError, match=needed) as caught:
        Settings.from_config(config | {key: value})
    assert str(caught.value).startswith(f"{key} is {value!r}; ")
    assert "\n" not in str(caught.value)


def test_a_whole_number_will_do_where_a_number_is_needed(config: Config) -> None:
    settings = Settings.from_config(config | {"learning-rate": 1})
    assert settings.learning_rate == 1.0
    assert isinstance(settings.learning_rate, float)


def test_resuming_needs_to_know_which_run(config: Config) -> None:
    with pytest.raises(SettingsError, match="run-name is empty"):
        Settings.from_config(config | {"resume": True})
