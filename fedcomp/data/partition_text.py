"""The text form of a partition: a scheme, then any feature skews: ``classes(2) + rotation(degrees=30)``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedcomp.core import build, check_range, split_sum
from fedcomp.data.schemes import SCHEMES, Own, Scheme

MAX_QUOTED = 200
"""Characters of a text that an error quotes."""


@dataclass(frozen=True, slots=True)
class ImageRotation:
    """All images of a client are rotated by one angle; the clients' angles are spread evenly from -degrees to degrees.

    Raises `ValueError` for `degrees` outside (0, 180].
    """

    degrees: float

    def __post_init__(self) -> None:
        check_range("degrees", self.degrees, above=0, most=180)

    def angle(self, client: int, num_clients: int) -> float:
        """Return the client's angle in degrees, counter-clockwise: the first client has the least, a single client 0."""
        return self.degrees * (2 * client / (num_clients - 1) - 1) if num_clients > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Noise:
    """Gaussian noise on the normalised samples, with standard deviation sigma * i / N for client i of N, counted from 1.

    Li et al., "Federated Learning on Non-IID Data Silos", arXiv 2102.02079, section III, add it to values in [0, 1]; here
    `sigma` is in units of the card's `std`.  Raises `ValueError` for `sigma` outside (0, 100].
    """

    sigma: float

    def __post_init__(self) -> None:
        check_range("sigma", self.sigma, above=0, most=100)

    def level(self, client: int, num_clients: int) -> float:
        """Return the standard deviation for `client`, counted from 0."""
        return self.sigma * (client + 1) / num_clients


Skew = ImageRotation | Noise

SKEWS: Mapping[str, Callable[..., Skew]] = {"rotation": ImageRotation, "noise": Noise}
"""Name -> constructor of each feature skew."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A parsed partition: the scheme assigns samples to clients, and the skews change each client's features."""

    scheme: Scheme
    skews: tuple[Skew, ...] = ()

    @property
    def own(self) -> bool:
        """Whether each node has its own samples, so that there are none to assign."""
        return isinstance(self.scheme, Own)


def split_partition(text: str) -> tuple[str, ...]:
    """Return the terms of a partition text: its scheme first, then its feature skews; nothing is looked up.

    Raises `ValueError` if `text` is not a sum of calls.

    Examples:
        >>> split_partition("classes(2) + rotation(degrees=30)")
        ('classes(2)', 'rotation(degrees=30)')

    """
    try:
        return split_sum(text)
    except (ValueError, AttributeError):
        quoted = repr(text)[:MAX_QUOTED]
        raise ValueError(f"{quoted} is not a partition; a text such as 'classes(2)' is needed") from None


def parse_partition(text: str) -> Partition:
    """Return the partition that `text` describes.

    Raises `ValueError` for another form, an unknown scheme or skew, a skew twice or together with ``own()``, and a setting out
    of range.

    Examples:
        >>> parse_partition("iid() + noise(sigma=0.1)").skews
        (Noise(sigma=0.1),)

    """
    scheme_text, *skew_texts = split_partition(text)
    skews = tuple(build(term, SKEWS, "feature skew") for term in skew_texts)
    kinds = [type(skew) for skew in skews]
    if len(set(kinds)) < len(kinds):
        raise ValueError(f"{text!r} has a feature skew twice; each is possible once")
    partition = Partition(build(scheme_text, SCHEMES, "partition scheme"), skews)
    if partition.own and skews:
        raise ValueError(f"{text!r} skews samples that nodes bring themselves; own() without skews is needed")
    return partition
