"""The run config of the app, checked once, before anything starts.

An error is one sentence that names the setting, its value, and what is needed.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

import fedcomp
from fedcomp.data import parse_partition
from fedcomp.flower import parse_mode
from server.strategies import parse_strategy


class SettingsError(ValueError):
    """A run cannot start, or cannot go on, with these settings or on this machine; the text is one sentence."""


def _accepted_by(parse: Callable[[str], object]) -> AfterValidator:
    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


def _number_as_text(value: object) -> object:
    """Return a whole number as the text that it was on a command line, such as the layer 2."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Numeral = BeforeValidator(_number_as_text)
# The description of a type completes the sentence "... is needed".
Text = Annotated[str, Field(description="a text"), Numeral]
MAX_COUNT = 10**9
Count = Annotated[int, Field(ge=0, le=MAX_COUNT, description="a whole number from 0 to 10^9")]
PositiveCount = Annotated[int, Field(ge=1, le=MAX_COUNT, description="a whole number from 1 to 10^9")]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1, description="a whole number from 0 to 2^63 - 1")]
Threads = Annotated[int, Field(ge=0, le=1024, description="a whole number from 0 to 1024")]
Seconds = Annotated[float, Field(ge=1, le=1e9, description="a number of seconds from 1 to 10^9")]
Share = Annotated[float, Field(ge=0, le=1, description="a number from 0 to 1")]
PositiveShare = Annotated[float, Field(gt=0, le=1, description="a number above 0 and at most 1")]
Number = Annotated[float, Field(ge=0, le=1e9, description="a number from 0 to 10^9")]
Step = Annotated[float, Field(gt=0, le=1e6, description="a number above 0 and at most 10^6")]
Decay = Annotated[float, Field(ge=0, le=1e6, description="a number from 0 to 10^6")]
Method = Annotated[str, Field(description="a text such as 'stc(density=0.01)'"), _accepted_by(fedcomp.parse)]


class CheckedConfig(BaseModel):
    """Settings from a command line, by their names with hyphens; an error is one sentence."""

    model_config = ConfigDict(
        alias_generator=lambda name: name.replace("_", "-"),
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
    )

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Return the settings in `config`; raise `SettingsError` for an unknown, missing or impossible one."""
        try:
            return cls.model_validate(dict(config))
        except ValidationError as error:
            details = error.errors()
            unknown = [detail for detail in details if detail["type"] == "extra_forbidden"]
            raise SettingsError(cls._sentence((unknown or details)[0])) from None

    def to_config(self) -> dict[str, str | int | float | bool]:
        """Return `config`, without settings that are None."""
        return self.model_dump(by_alias=True, exclude_none=True)

    @classmethod
    def _sentence(cls, detail: ErrorDetails) -> str:
        fields = {str(field.alias): field for field in cls.model_fields.values()}
        key = str(detail["loc"][0])
        if detail["type"] == "extra_forbidden":
            return f"unknown setting {key!r}; there are: {', '.join(sorted(fields))}"
        if detail["type"] == "missing":
            return f"setting {key!r} is missing; a run needs all of: {', '.join(sorted(fields))}"
        needed = detail.get("ctx", {}).get("error") or f"{fields[key].description} is needed"
        return f"{key} is {detail['input']!r}; {needed}"


class Settings(CheckedConfig):
    """One run.  The names are those of `[tool.flwr.app.config]`, with underscores; all defaults are there."""

    dataset: Annotated[str, Field(pattern=r"^[\w.-]+$", description="the name of a card in datasets/")]
    data_dir: Text
    partition: Annotated[str, Field(description="a text such as 'classes(2)'"), _accepted_by(parse_partition)]
    model: Annotated[str, Field(pattern=r"^\w+$", description="the name of a model")]
    seed: Seed
    strategy: Annotated[str, Field(description="a text such as 'fedavg'"), _accepted_by(parse_strategy)]
    weighting: Annotated[Literal["examples", "uniform"], Field(description="'examples' or 'uniform'")]
    clip_norm: Number
    clip_median: Number
    mode: Annotated[str, Field(description="a text such as 'async(buffer=10)'"), _accepted_by(parse_mode)]
    num_rounds: PositiveCount
    fraction_train: PositiveShare
    sampling_decay: Decay
    fraction_evaluate: Share
    min_nodes: PositiveCount
    local_epochs: PositiveCount
    local_steps: Count
    batch_size: PositiveCount
    learning_rate: Step
    learning_rate_schedule: Text
    optimizer: Annotated[Literal["sgd", "adam"], Field(description="'sgd' or 'adam'")]
    momentum: Share
    client_momentum: Annotated[Literal["reset", "keep", "decay"], Field(description="'reset', 'keep' or 'decay'")]
    weight_decay: Decay
    training: Text
    split: Text
    split_layer: Text
    uplink: Method
    downlink: Method
    device: Annotated[
        str,
        Field(
            pattern=r"^(auto|cpu|mps|cuda(:(0|[1-9][0-9]{0,8}))?)$", description="auto, cpu, cuda, cuda:<number> or mps"
        ),
    ]
    num_threads: Threads
    evaluate_every: PositiveCount
    runs_dir: Annotated[str, Field(min_length=1, description="a folder"), Numeral]
    run_name: Annotated[
        str,
        Field(pattern=r"^([\w-][\w.-]{0,99})?$", description="a plain name of at most 100 letters, without folders,"),
        Numeral,
    ]
    checkpoint_every: Count
    resume: Annotated[bool, Field(description="true or false")]
    round_timeout: Seconds
    node_timeout: Number

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Return the settings in a run config; raise `SettingsError` for an unknown, missing or impossible one."""
        settings = super().from_config(config)
        if settings.resume and not settings.run_name:
            raise SettingsError("resume is true, but run-name is empty; the name of the run to resume is needed")
        if settings.optimizer == "adam" and settings.momentum == 1:
            raise SettingsError("momentum is 1.0; with the optimizer 'adam', a number below 1 is needed")
        return settings
