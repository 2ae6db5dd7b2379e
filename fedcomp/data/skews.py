"""Feature skews: settings that change the features of each client's samples.

`fedcomp.tasks.skew` applies them.  They are part of a partition text: ``classes(2) + rotation(degrees=30)``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedcomp.core import check_range


@dataclass(frozen=True, slots=True)
class Rotation:
    """All images of a client are rotated by one angle; the clients' angles are spread evenly from -degrees to degrees.

    Raises `ValueError` for `degrees` outside (0, 180].
    """

    degrees: float

    def __post_init__(self) -> None:
        """Check the setting."""
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
        """Check the setting."""
        check_range("sigma", self.sigma, above=0, most=100)

    def level(self, client: int, num_clients: int) -> float:
        """Return the standard deviation for `client`, counted from 0."""
        return self.sigma * (client + 1) / num_clients


Skew = Rotation | Noise

SKEWS: Mapping[str, Callable[..., Skew]] = {"rotation": Rotation, "noise": Noise}
"""Name -> constructor of each feature skew."""
