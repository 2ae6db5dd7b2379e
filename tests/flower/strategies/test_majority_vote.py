import numpy as np
from flwr.app import Array, ArrayRecord

import fedcomp
from fedcomp.flower import CompressedStrategy, LocalGrid, MajorityVote
from tests.flower.strategies.by_hand import one_round, record, values
from tests.flower.toy import training


def test_each_entry_moves_in_the_direction_of_most_votes() -> None:
    published = record({"weight": [0.0, 1.0, 2.0, 3.0]})
    sent = [
        {"weight": [0.1, 1.1, 1.9, 3.0]},  # up, up, down, no vote
        {"weight": [0.1, 0.9, 1.9, 2.9]},  # up, down, down, down
        {"weight": [-9.0, 1.0, 9.0, 3.0]},  # down, no vote, up, no vote
    ]
    model = one_round(MajorityVote(step=0.5), published, sent)
    assert values(model) == [0.5, 1.0, 1.5, 2.5], "a tie moves nothing; a single vote decides"


def test_votes_have_neither_weight_nor_size() -> None:
    published = record({"weight": [0.0]})
    sent = [{"weight": [1e-30]}, {"weight": [1e-30]}, {"weight": [-1e30]}]
    assert values(one_round(MajorityVote(step=0.25), published, sent, weights=[1, 1, 1000])) == [0.25]


def test_the_direction_is_the_sign_of_the_sum_of_signs() -> None:
    rng = np.random.default_rng(0)
    published = rng.standard_normal((7, 9))
    models = [published + rng.integers(-1, 2, (7, 9)) * rng.random((7, 9)) for _ in range(6)]
    model = one_round(MajorityVote(step=0.01), record({"weight": published}), [{"weight": each} for each in models])
    expected = published + 0.01 * np.sign(sum(np.sign(each - published) for each in models))
    np.testing.assert_array_equal(np.array(values(model)).reshape(7, 9), expected)


def test_votes_far_below_a_weights_rounding_count_under_a_compressed_uplink() -> None:
    """Weights of 1 plus votes of 1e-17 are weights of 1, in float64 too: the votes come from the differences."""
    uplink, dense = fedcomp.parse("signsgd(step=1e-17)"), fedcomp.dense()
    strategy = CompressedStrategy(MajorityVote(step=0.5, fraction_evaluate=0.0), uplink=uplink, downlink=dense)
    published = ArrayRecord({"weight": Array(np.ones((4, 3), np.float32))})
    client = training(lambda given, context, _: {"weight": given["weight"] - np.float32(0.25)})
    strategy.start(LocalGrid(client, 3), published, num_rounds=1)
    assert values(strategy.arrays) == [0.5] * 12
