"""Run the nodes of `node-*.toml` in this process, plain and then compressed: ``python simulate.py``."""

import tomllib
from pathlib import Path

from fedcomp.gossip import Network, parse_method, parse_topology
from gossip_example.task import Digits

FOLDER = Path(__file__).parent


def run(method: str) -> None:
    """Train all nodes, and print the bytes, and the accuracy of the node that has the worst model."""
    config = tomllib.loads((FOLDER / "node-0.toml").read_text(encoding="utf-8"))
    num_nodes = config["nodes"]
    tasks = [Digits(node, num_nodes, 0, **config["settings"]) for node in range(num_nodes)]
    network = Network(parse_topology(config["topology"], num_nodes), tasks[0].first_model(), parse_method(method))
    sent_bytes = dense_bytes = 0
    for number in range(1, config["rounds"] + 1):
        trained = [task.train(network.model(task.node), {}, number)[0] for task in tasks]
        exchanged = network.exchange(trained)
        sent_bytes, dense_bytes = sent_bytes + exchanged.sent_bytes, dense_bytes + exchanged.dense_bytes
    print(f"together {sent_bytes / 1e6:.1f} MB, {dense_bytes / sent_bytes:.1f} times smaller")
    print(f"accuracy {min(task.evaluate(network.model(task.node), 0)['accuracy'] for task in tasks):.1%}")


def main() -> None:
    """Run with dense messages, and then with the method of `node-0.toml`."""
    print("compress=false")
    run("choco(dense(), step_size=1.0)")
    print("compress=true")
    run(tomllib.loads((FOLDER / "node-0.toml").read_text(encoding="utf-8"))["method"])


if __name__ == "__main__":
    main()
