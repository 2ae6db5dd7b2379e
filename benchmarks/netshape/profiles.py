"""Known networks, with the source of their numbers: trials shape traffic by them, and reports predict times."""

from dataclasses import dataclass

_WEBPAGETEST = "WebPageTest, www/settings/connectivity.ini.sample, profile {}"


@dataclass(frozen=True, slots=True)
class Profile:
    """A node's link to the server: rates in Mbit/s (10^6 bits), the round-trip time in ms, and the source of both."""

    name: str
    up_mbit_s: float
    down_mbit_s: float
    round_trip_ms: float
    source: str

    def __post_init__(self) -> None:
        if not (self.up_mbit_s > 0 and self.down_mbit_s > 0 and self.round_trip_ms >= 0):
            raise ValueError(
                f"{self.name}: {self.up_mbit_s} Mbit/s up, {self.down_mbit_s} down, {self.round_trip_ms} ms; "
                "rates above 0 and a time of at least 0 are needed"
            )


PROFILES = (
    Profile("3G", 0.768, 1.6, 300, _WEBPAGETEST.format("[3G]")),
    Profile("home DSL", 0.384, 1.5, 50, _WEBPAGETEST.format("[DSL]")),
    Profile("LTE", 12, 12, 70, _WEBPAGETEST.format("[LTE]")),
    Profile("1 Gb/s", 1000, 1000, 1, "1000BASE-T, IEEE 802.3ab, at its full rate; 1 ms is our assumption"),
)
"""The slowest network first.  WebPageTest gives its latencies as round-trip times."""

BY_WORD = dict(zip(("3g", "dsl", "lte", "gigabit"), PROFILES, strict=True))
"""The profiles by their names on a command line."""
