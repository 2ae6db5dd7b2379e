"""What can go wrong with bytes that arrived, as one tree.

FedcompError
├── TruncatedError      fewer bytes than were promised
├── CorruptError        a checksum, a range or a padding bit is wrong
├── UnknownFormatError  a magic number, format, frame kind or codec id that this version does not know
├── LayoutError         the frame is for another model
├── VersionError        the frame starts from another version than the receiver holds
└── StaleError          a message or an uplink that a newer one has replaced

A caller's own mistake (a setting out of range, a vector of the wrong dtype) is a `ValueError` instead; so are numbers that
cannot be sent:

DivergedError           NaN, infinity, or a value beyond its dtype, as of training that has diverged
└── NonFiniteError      such an entry of a vector to be encoded
"""


class FedcompError(Exception):
    """Something that arrived cannot be used; the receiver's state is unchanged."""


class TruncatedError(FedcompError):
    """Fewer bytes than the head or the body promised."""


class CorruptError(FedcompError):
    """The bytes contradict themselves."""


class UnknownFormatError(FedcompError):
    """The bytes name a format, kind or codec that is not known here."""


class LayoutError(FedcompError):
    """The frame belongs to another model than the receiver's."""


class VersionError(FedcompError):
    """The frame starts from another version of the model than the receiver holds."""


class StaleError(FedcompError):
    """A newer message has replaced this one."""


class DivergedError(ValueError):
    """A number to be sent is NaN, infinite, or beyond its dtype."""


class NonFiniteError(DivergedError):
    """An entry of a vector to be encoded, alone or with the residual, is NaN or infinite."""

    def __init__(self, index: int, value: float, where: str = "") -> None:
        """Name the entry by `index`, and by the tensor that holds it in `where` once that is known."""
        super().__init__(index, value, where)
        self.index, self.value, self.where = index, value, where

    def __str__(self) -> str:
        """Say which entry it is."""
        return f"entry {self.index}{self.where} is {self.value}; only finite values can be encoded"
