"""All errors of the library, in two trees.

Data that arrived cannot be used:

FedcompError
├── TruncatedError      fewer bytes than announced
├── CorruptError        a checksum, a range or a padding bit is wrong
│   └── OffGridError    a step that the grid of a downlink cannot hold
├── UnknownFormatError  a magic number, format, frame kind or codec id that this version does not know
├── LayoutError         the frame is for another model
├── VersionError        the frame starts from another version than the receiver holds
├── StaleError          a newer message has replaced this message or uplink
└── NoUpdateError       no node has sent an update that could be used, in a whole run

The caller made a mistake (a setting out of range, a vector of the wrong dtype), or numbers cannot be sent:

ValueError
└── DivergedError       NaN, infinity, or a value beyond its dtype, as after training that diverged
    └── NonFiniteError  such an entry of a vector to be encoded
"""


class FedcompError(Exception):
    """Data that arrived cannot be used; the receiver's state is unchanged."""


class TruncatedError(FedcompError):
    """There are fewer bytes than the head or the body announced."""


class CorruptError(FedcompError):
    """The bytes contradict themselves."""


class OffGridError(CorruptError):
    """A value is no whole multiple of the grid's unit, or a sum has too many units."""


class UnknownFormatError(FedcompError):
    """The bytes name a format, kind or codec that this version does not know."""


class LayoutError(FedcompError):
    """The frame belongs to another model than the receiver's."""


class VersionError(FedcompError):
    """The frame starts from another version of the model than the receiver holds."""


class StaleError(FedcompError):
    """A newer message has replaced this one."""


class NoUpdateError(FedcompError):
    """A run has ended with the model that it began with: no update of a node could be used."""


class DivergedError(ValueError):
    """A number to be sent is NaN, infinite, or beyond its dtype."""


class NonFiniteError(DivergedError):
    """An entry of a vector to be encoded, alone or with the residual, is NaN or infinite."""

    def __init__(self, index: int, value: float, where: str = "") -> None:
        """Name the entry by `index`, and in `where` by its tensor once that is known."""
        super().__init__(index, value, where)
        self.index, self.value, self.where = index, value, where

    def __str__(self) -> str:
        return f"entry {self.index}{self.where} is {self.value}; only finite values can be encoded"


CORRUPTION_ERRORS = (FedcompError, ValueError, KeyError, TypeError)
"""Errors that reading a saved state can raise where each part is valid, but the parts contradict each other."""
