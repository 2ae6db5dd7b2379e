"""`balanced()`: its text, what it refuses, and how its density follows the traffic."""

import numpy as np
import pytest

import fedcomp
from fedcomp.methods import balance_of, first_share, next_share, with_share
from fedcomp.methods.balance import MIN_SHARE


def test_a_compressor_and_its_text_name_the_same() -> None:
    given = fedcomp.balanced(fedcomp.stc(density=0.01), balance=0.5)
    assert str(given) == "balanced(method='stc(density=0.01)', balance=0.5)"
    for text in (str(given), "balanced(stc(density=0.01), balance=0.5)", "balanced('stc(density=0.01)', 0.5)"):
        assert fedcomp.parse(text) == given
    assert str(fedcomp.balanced()) == "balanced(method='stc(density=0.02)')"
    assert balance_of(given) == 0.5
    assert balance_of(fedcomp.balanced()) == 1.0


def test_alone_it_is_the_method_itself() -> None:
    vector = np.random.default_rng(0).standard_normal(1000, np.float32)
    given, method = fedcomp.balanced("topk(density=0.1)"), fedcomp.topk(density=0.1)
    assert given.encode(vector, given.init(1000))[0] == method.encode(vector, method.init(1000))[0]


@pytest.mark.parametrize(
    ("method", "balance", "message"),
    [
        ("eden(bits=1)", 1.0, "eden.* has no density"),
        ("dense()", 1.0, "no density"),
        ("ef21(density=0.1)", 1.0, "ef21.* does not work as downlink"),
        ("stc(density=2)", 1.0, "density is 2"),
        ("none()", 1.0, "unknown method 'none'"),
        ("balanced(stc(density=0.1))", 1.0, "no density"),
        (3, 1.0, "a int; a text of the form"),
        ("stc(density=0.1)", 0.0, "balance is 0.0; it is a number, above 0"),
        ("stc(density=0.1)", "1", "balance is '1'"),
    ],
)
def test_bad_settings_are_refused(method: str, balance: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fedcomp.balanced(method, balance)


def test_a_share_scales_the_density_alone() -> None:
    given = fedcomp.balanced(fedcomp.stc(density=0.02, order="interleaved"))
    assert with_share(given, 0.5) == fedcomp.stc(density=0.01, order="interleaved")
    assert with_share(given, 1 / 3) == fedcomp.stc(density=0.00667, order="interleaved"), "three digits"
    assert with_share(given, 1.0) == fedcomp.stc(density=0.02, order="interleaved")


@pytest.mark.parametrize("participation", [1.0, 0.2, 0.0125])
@pytest.mark.parametrize("balance", [1.0, 0.5, 2.0])
def test_the_share_settles_where_the_traffic_is_in_balance(participation: float, balance: float) -> None:
    """Nodes are away for 1 / participation versions, and fetch bytes in proportion to the densities of those."""
    missed = round(1 / participation)
    settled = 0.3 * balance**1.25  # where what is fetched is in balance
    shares = [first_share(participation)] * missed

    def fetched() -> float:
        return float((sum(shares[-missed:]) / (0.3 * missed)) ** 0.8)

    late: list[float] = []
    for number in range(1500):
        known = {"fetched": fetched(), "sent": 1.0, "balance": balance, "participation": participation}
        shares.append(next_share(shares[-1], **known))
        late += [shares[-1]] if number >= 1300 else []
    assert (min(late), max(late)) == pytest.approx((settled, settled), rel=0.02), "it neither drifts nor swings"


def test_without_traffic_the_share_stays() -> None:
    for fetched, sent in ((0.0, 0.0), (0.0, 5.0), (5.0, 0.0)):
        assert next_share(0.4, fetched=fetched, sent=sent, balance=1.0, participation=0.5) == 0.4


def test_the_share_keeps_its_bounds() -> None:
    high, low = {"fetched": 1.0, "sent": 1e9}, {"fetched": 1e9, "sent": 1.0}
    assert next_share(0.9, **high, balance=1.0, participation=1.0) == 1.0
    assert next_share(0.06, **low, balance=1.0, participation=1.0) == MIN_SHARE
    assert first_share(1e-4) == MIN_SHARE
    assert first_share(1.0) == 1.0
