"""Feature skew: what a client's samples look like, whichever samples they are.

Settings alone; `fedcomp.tasks.skew` applies them.  Names and texts are part of a partition:
``classes(2) + rotation(degrees=30)``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedcomp.core import check_range


@dataclass(frozen=True, slots=True)
class Rotation:
    """Every image of a client turned by one angle; the clients' angles are spread evenly from -degrees to degrees.

    Raises `ValueError` for `degrees` outside (0, 180].
    """

    degrees: float

    def __post_init__(self) -> None:
        """Check the setting."""
        check_range("degrees", self.degrees, above=0, most=180)

    def angle(self, client: int, num_clients: int) -> float:
        """Return the client's angle in degrees, counter-clockwise: the first has the least; a single client has 0."""
        return self.degrees * (2 * client / (num_clients - 1) - 1) if num_clients > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Noise:
    """Gaussian noise on the samples as the model reads them, the more the later the client: sigma * i / N.

    Li et al., "Federated Learning on Non-IID Data Silos", arXiv 2102.02079, section III; there for values in [0, 1],
    here after normalisation, so that `sigma` is in units of the card's `std`.  Raises `ValueError` for `sigma` outside
    (0, 100].
    """

    sigma: float

    def __post_init__(self) -> None:
        """Check the setting."""
        check_range("sigma", self.sigma, above=0, most=100)

    def level(self, client: int, num_clients: int) -> float:
        """Return the standard deviation for client i - 1 of N, counted from 0: sigma * i / N."""
        return self.sigma * (client + 1) / num_clients


Skew = Rotation | Noise

SKEWS: Mapping[str, Callable[..., Skew]] = {"rotation": Rotation, "noise": Noise}
"""Name -> constructor of the feature skews that there are."""
