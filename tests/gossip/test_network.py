"""Nodes on a graph: the textbook case by hand, what holds for every graph and compressor, and what is refused."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedcomp
from fedcomp.compressor import Compressor
from fedcomp.core import CompensatedUpdate
from fedcomp.entropy import SparseValues
from fedcomp.errors import FedcompError
from fedcomp.gossip import Choco, DeepSqueeze, Method, Network, find_step_size, parse_method, parse_topology
from fedcomp.gossip.choco import ChocoNode
from fedcomp.gossip.shared_tensors import SharedTensors
from fedcomp.memory import NoMemory
from fedcomp.quantize import Contracting
from fedcomp.quantized import Sparse

Array = NDArray[Any]
N = 100
METHODS: dict[str, Method] = {
    "choco dense": Choco(fedcomp.dense(), 1.0),
    "choco topk": Choco(fedcomp.topk(density=0.1, feedback=False), 0.3),
    "choco qsgd": Choco(fedcomp.qsgd(levels=3), 0.2),
    "choco eden": Choco(fedcomp.eden(bits=1), 0.3),
    "deep squeeze stc": DeepSqueeze(fedcomp.stc(density=0.1), 0.1),
    "deep squeeze topk": DeepSqueeze(fedcomp.topk(density=0.2), 0.1),
}
GRAPHS = ["ring()", "torus()", "exponential()", "complete()", "edges([[0,1],[1,2],[2,3],[3,4],[4,5],[0,3]])"]


def network(method: Method, text: str = "ring()", num_nodes: int = 6, n: int = N) -> Network:
    return Network(parse_topology(text, num_nodes), {"w": np.zeros(n, np.float32)}, method)


def trained(net: Network, rng: np.random.Generator, size: float = 1.0) -> list[dict[str, Array]]:
    """Return each node's model plus noise."""
    noise = (np.float32(size) * rng.standard_normal(N, np.float32) for _ in net.nodes)
    return [{"w": net.model(node)["w"] + step} for node, step in enumerate(noise)]


def test_two_nodes_that_send_their_largest_entry() -> None:
    """w_01 = 1/2.  Of (4, 1) and (0, -2), 4 and -2 are sent: x_0 = y_0 + 1/2 ((0, -2) - (4, 0)), and x_1 the opposite.

    Then nobody trains.  What the estimates lack is (-2, 0) and (2, 1), so they become (2, 0) and (2, -2).
    """
    net = network(Choco(fedcomp.topk(density=0.5, feedback=False), 1.0), num_nodes=2, n=2)
    net.exchange([{"w": np.array([4, 1], np.float32)}, {"w": np.array([0, -2], np.float32)}])
    assert [net.model(node)["w"].tolist() for node in (0, 1)] == [[2, 0], [2, -1]]
    net.exchange([net.model(node) for node in (0, 1)])
    first = net.nodes[0]
    assert isinstance(first, ChocoNode)
    assert first.publisher.replica.vector.tolist() == [2, 0]
    assert first.held[1].vector.tolist() == [2, -2]
    assert [net.model(node)["w"].tolist() for node in (0, 1)] == [[2, -1], [2, 0]]


def test_two_nodes_of_deep_squeeze() -> None:
    """Of y + e, 4 and -2 are sent, and 1 and 0 remain.  Then (2, 0) + (0, 1) and (2, -1): 2 and 2 are sent."""
    net = network(DeepSqueeze(fedcomp.topk(density=0.5), 1.0), num_nodes=2, n=2)
    net.exchange([{"w": np.array([4, 1], np.float32)}, {"w": np.array([0, -2], np.float32)}])
    assert [net.model(node)["w"].tolist() for node in (0, 1)] == [[2, 0], [2, -1]]
    net.exchange([net.model(node) for node in (0, 1)])
    assert [net.model(node)["w"].tolist() for node in (0, 1)] == [[2, 0], [2, -1]], "both sent the same"
    assert [vars_of(node)["residual"].tolist() for node in net.nodes] == [[0, 1], [0, -1]]


def vars_of(node: Any) -> dict[str, Array]:
    memory: dict[str, Array] = node.memory
    return memory


@pytest.mark.sample(10)
@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", METHODS)
def test_the_mean_of_all_nodes_stays_that_of_the_trained_models(name: str, graph: str) -> None:
    rng = np.random.default_rng(4)
    net = network(METHODS[name], graph)
    for turn in range(6):
        models = trained(net, rng)
        absent = () if turn < 3 else rng.choice(6, 2, replace=False).tolist()
        expected = [net.model(node)["w"] if node in absent else models[node]["w"] for node in range(6)]
        net.exchange(models, absent)
        np.testing.assert_allclose(net.mean, np.mean(expected, axis=0, dtype=np.float64), atol=2e-6)
        for node in absent:
            np.testing.assert_array_equal(net.model(node)["w"], expected[node])


@pytest.mark.parametrize("name", [name for name in METHODS if name.startswith("choco")])
def test_the_neighbours_hold_the_same_bits_also_after_an_absence(name: str) -> None:
    rng = np.random.default_rng(5)
    net = network(METHODS[name], "torus()")
    for turn in range(8):
        net.exchange(trained(net, rng), absent=[2, 3] if turn in (2, 3, 4) else [])
    for node, here in enumerate(net.nodes):
        assert isinstance(here, ChocoNode)
        for other in net.topology.neighbors[node]:
            there = net.nodes[other]
            assert isinstance(there, ChocoNode)
            assert here.held[other].place == there.publisher.replica.place
            assert here.held[other].vector.tobytes() == there.publisher.replica.vector.tobytes()


def test_on_the_complete_graph_dense_gossip_is_federated_averaging() -> None:
    rng = np.random.default_rng(6)
    net = network(Choco(fedcomp.dense()), "complete()")
    for _ in range(5):
        models = trained(net, rng)
        net.exchange(models)
        average = np.mean([model["w"] for model in models], axis=0, dtype=np.float64)
        for node in range(6):
            np.testing.assert_allclose(net.model(node)["w"], average, atol=1e-6)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["choco topk", "choco qsgd", "choco eden"])
def test_without_training_all_models_become_their_mean_however_few_entries_are_sent(name: str) -> None:
    net = network(METHODS[name])
    net.exchange(trained(net, np.random.default_rng(7)))
    mean, before = net.mean, net.consensus_distance
    for _ in range(100):
        net.exchange([net.model(node) for node in range(6)])
    assert net.consensus_distance < 1e-3 * before
    for node in range(6):
        np.testing.assert_allclose(net.model(node)["w"], mean, atol=0.02)


@pytest.mark.parametrize("name", METHODS)
def test_a_network_is_the_same_each_time(name: str) -> None:
    def run() -> list[bytes]:
        rng, net = np.random.default_rng(8), network(METHODS[name])
        sent = [net.exchange(trained(net, rng)) for _ in range(3)]
        return [repr(sent).encode(), *(net.model(node)["w"].tobytes() for node in range(6))]

    assert run() == run()


def test_each_node_and_each_round_draws_other_random_numbers() -> None:
    net = network(Choco(fedcomp.eden(bits=1), step_size=0.5), "complete()")
    step, estimates = np.random.default_rng(3).standard_normal(N, np.float32), list[bytes]()
    for _ in range(2):
        net.exchange([{"w": step}] * 6)
        for node in net.nodes:
            assert isinstance(node, ChocoNode)
            estimates.append(node.publisher.replica.vector.tobytes())
    assert len(set(estimates)) == 12
    other = Network(net.topology, {"w": np.zeros(N, np.float32)}, Choco(fedcomp.eden(bits=1), step_size=0.5), seed=1)
    other.exchange([{"w": step}] * 6)
    first = other.nodes[0]
    assert isinstance(first, ChocoNode)
    assert first.publisher.replica.vector.tobytes() not in estimates


def test_every_message_counts_and_nobody_sends_to_the_absent() -> None:
    net = network(Choco(fedcomp.dense()))
    whole = net.exchange(trained(net, np.random.default_rng(9)))
    assert whole.dense_bytes == 12 * 4 * N
    assert 12 * 4 * N < whole.sent_bytes < 12 * (4 * N + 80), "six nodes send to two neighbours each"
    part = net.exchange(trained(net, np.random.default_rng(9)), absent=[0])
    assert part.dense_bytes == 8 * 4 * N
    late = net.exchange(trained(net, np.random.default_rng(9)))
    assert late.sent_bytes > whole.sent_bytes, "node 0 gets what it missed"
    sparse = network(METHODS["choco topk"]).exchange(trained(net, np.random.default_rng(9)))
    assert sparse.sent_bytes < 0.3 * sparse.dense_bytes


def test_whole_numbers_and_statistics_stay_on_their_node() -> None:
    model = {
        "norm.running_mean": np.ones(3, np.float32),
        "w[0]": np.zeros((2, 3), np.float32),
        "steps": np.array(0),
    }
    net = Network(parse_topology("ring()", 3), model, Choco(fedcomp.dense()))
    net.exchange(
        [
            {"steps": np.array(node), "w[0]": np.full((2, 3), node, np.float32), "norm.running_mean": np.full(3, node)}
            for node in range(3)
        ]
    )
    for node in range(3):
        result = net.model(node)
        assert list(result) == list(model)
        assert (int(result["steps"]), result["norm.running_mean"].tolist()) == (node, [node] * 3)
        np.testing.assert_allclose(result["w[0]"], 1, rtol=1e-6)
    assert list(net.mean_model) == list(model)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("steps", np.array(["x", "y"]), r"tensor 'steps' is <U1 \(2,\); int64 \(\) is needed"),
        ("steps", np.array(0.5), r"tensor 'steps' is float64 \(\); int64"),
        ("norm.running_mean", np.zeros((7, 2), np.float32), r"tensor 'norm.running_mean' is float32 \(7, 2\)"),
        ("norm.running_mean", np.full(3, np.inf, np.float32), "tensor 'norm.running_mean' holds NaN or infinity"),
    ],
)
def test_tensors_that_stay_on_their_node_are_checked_too(name: str, array: Array, message: str) -> None:
    model = {"norm.running_mean": np.ones(3, np.float32), "w": np.zeros(2, np.float32), "steps": np.array(0)}
    net = Network(parse_topology("ring()", 3), model, Choco(fedcomp.dense()))
    with pytest.raises(ValueError, match=f"node 1: {message}"):
        net.exchange([model, model | {name: array}, model])
    assert net.round == 0


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([{"w": np.zeros(N)}] * 5 + [{"w": np.full(N, -3e38)}], "node 5: a weight of magnitude 3e.38; at most 1e.15"),
        ([{"w": np.zeros(N)}] * 5, "5 trained models of 6 nodes"),
        ([{"w": np.zeros(N)}] * 5 + [{"w": np.full(N, np.nan)}], "node 5: tensor 'w' holds NaN"),
        ([{"w": np.zeros(N)}] * 5 + [{"w": np.zeros(7)}], r"node 5: tensor 'w' has shape \(7,\)"),
        ([{"w": np.zeros(N)}] * 5 + [{"v": np.zeros(N)}], "node 5: tensors differ"),
    ],
)
def test_models_that_do_not_fit_are_refused_and_nothing_changes(models: list[dict[str, Array]], message: str) -> None:
    net = network(METHODS["choco topk"])
    net.exchange(trained(net, np.random.default_rng(1)))
    before = [net.model(node)["w"].tobytes() for node in range(6)]
    with pytest.raises(ValueError, match=message):
        net.exchange(models)
    assert [net.model(node)["w"].tobytes() for node in range(6)] == before
    assert net.round == 1


def test_absent_nodes_that_do_not_exist_are_refused() -> None:
    net = network(METHODS["choco topk"])
    with pytest.raises(ValueError, match=r"absent is \[6, 9\]; nodes are 0 to 5"):
        net.exchange(trained(net, np.random.default_rng(1)), absent=[0, 9, 6])
    assert net.round == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Choco(fedcomp.stc()), "stc.* remembers what it leaves out; CHOCO needs a compressor without memory"),
        (lambda: Choco(fedcomp.dense(), 0), "step_size is 0"),
        (lambda: Choco(fedcomp.dense(), 1.5), "step_size is 1.5"),
        (lambda: DeepSqueeze(fedcomp.dense()), r"dense\(\) keeps no residual"),
        (lambda: DeepSqueeze(fedcomp.ef21(density=0.1)), "keeps no residual"),
        (lambda: DeepSqueeze(fedcomp.stc(), -1), "step_size is -1"),
        (lambda: Choco(fedcomp.auto()), r"auto\(\) follows a server's rounds"),
        (lambda: parse_method("deep_squeeze(balanced(stc()))"), "follows a server's rounds"),
        (lambda: parse_method("choco()"), "the settings of choco are: compressor, step_size"),
        (lambda: parse_method("gossip(dense())"), "is not of the form|unknown gossip method"),
        (lambda: parse_method("choco(dense(), step_size=2)"), "step_size is 2"),
    ],
)
def test_settings_that_do_not_fit_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_a_text_names_a_method(method: Method) -> None:
    assert parse_method(str(method)) == method


def test_the_step_size_that_is_found_brings_the_models_closer_than_others() -> None:
    graph = parse_topology("ring()", 4)
    assert find_step_size(graph, Choco(fedcomp.dense())).step_size == 1
    for method in (Choco(fedcomp.topk(density=0.05, feedback=False)), DeepSqueeze(fedcomp.topk(density=0.1))):
        found = find_step_size(graph, method, ((200,),)).step_size
        assert found is not None
        assert 0.01 < found < 1


def test_the_search_sees_the_shapes_of_the_model() -> None:
    """PowerSGD sends a vector whole and a matrix in two thin factors."""
    graph, method = parse_topology("ring()", 4), DeepSqueeze(fedcomp.powersgd(rank=1))
    whole, matrix = (find_step_size(graph, method, shapes).step_size for shapes in (((900,),), ((30, 30),)))
    assert whole == 1
    assert matrix is not None
    assert matrix <= 1 / 8


def test_a_compressor_that_sends_little_gets_no_larger_step_size_than_its_share() -> None:
    """With 1/32, rand-k of 1 % comes closer for 60 rounds and has diverged after 400."""
    found = find_step_size(parse_topology("ring()", 4), Choco(fedcomp.randk(density=0.01, feedback=False)), ((300,),))
    assert found.step_size is not None
    assert found.step_size <= 1 / 64


def test_a_network_finds_the_step_size_that_its_method_does_not_name() -> None:
    method = Choco(fedcomp.topk(density=0.1, feedback=False))
    net = network(method, num_nodes=4)
    assert isinstance(net.method, Choco)
    assert net.method == find_step_size(net.topology, method, ((N,),))
    assert parse_method(str(net.method)) == net.method


def test_a_node_that_names_no_step_size_needs_one() -> None:
    """A network finds it before its nodes start; a node alone has no graph to find it for."""
    shared = SharedTensors.of({"w": np.zeros(4, np.float32)})
    node = Choco(fedcomp.dense()).start(shared.layout, np.zeros(4, np.float32), {1: 0.5})
    with pytest.raises(ValueError, match="step_size is None; find_step_size finds one"):
        node.difference(1)


def test_a_search_in_which_nothing_converges_is_refused_in_one_sentence() -> None:
    nothing = Compressor("nothing", (), Nothing(), SparseValues(), NoMemory())
    with pytest.raises(ValueError, match="brings random models of 3 nodes no closer in 60 rounds") as error:
        find_step_size(parse_topology("ring()", 3), Choco(nothing), ((50,),))
    assert "\n" not in str(error.value)


class Nothing:
    """Claims to contract, and sends nothing."""

    def quantize(self, value: CompensatedUpdate, /) -> Sparse:
        return Sparse(value.n, np.empty(0, np.int64), np.empty(0, np.float32))

    def error_bound(self, n: int) -> Contracting:
        return Contracting(0.99)


@pytest.mark.parametrize("name", ["choco topk", "deep squeeze stc"])
def test_frames_that_no_neighbour_sends_are_refused_and_change_nothing(name: str) -> None:
    rng = np.random.default_rng(2)
    net = network(METHODS[name])
    net.exchange(trained(net, rng))
    other = Network(parse_topology("ring()", 3), {"v": np.ones(N, np.float32)}, METHODS[name])
    for _ in range(2):
        other.exchange([{"v": np.full(N, node, np.float32)} for node in range(3)])
    late = net.nodes[1].frames_from((0, 0)) if name.startswith("deep") else ()
    here, there = net.nodes[0], net.nodes[1]
    for node in (here, there):
        node.publish(node.model + np.float32(1), 2, 0)
    good = b"".join(there.frames_from(here.place_of(1)))
    place = here.place_of(1)
    bad = [b"", good[:-3], good + b"x", rng.bytes(300), *other.nodes[1].frames_from((99, 9)), *late]
    bad += [
        bytes(byte ^ (1 << bit) * (at == index) for index, byte in enumerate(good))
        for at in (4, 20, 60)
        for bit in (0, 6)
    ]
    for data in bad:
        with pytest.raises(FedcompError):
            here.take(1, [data])
        assert here.place_of(1) == place
    here.take(1, [good])
