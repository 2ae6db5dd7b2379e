"""A small federation on one device, of the library's own parts: without Flower, whose place this loop takes."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.nn import functional

import fedcomp
from clients.samples import own_card
from fedcomp.data import load, partition_train
from fedcomp.sync import Publisher, Reply, Subscriber, start_replica, weighted_mean
from fedcomp.tasks import build_model, evaluate, input_shape, prepare
from fedcomp.training import Plan, State, parse
from fedcomp.wire import layout_of, parse_server_message, to_numpy

CLIENTS, PARTITION = 10, "stc(classes=2)"
BATCH, STEPS, LEARNING_RATE = 32, 5, 0.1


@dataclass(frozen=True, slots=True)
class Result:
    """What a federation ended with: the accuracy, the bytes that were sent, and those that plain training would send.

    `digest` is the fingerprint of the last model: the same for two federations that went the same way to the bit.
    """

    accuracy: float
    sent_bytes: int
    dense_bytes: int
    digest: int


def federation(device: torch.device, rounds: int, training: str = "") -> Result:
    """Train on the digits of scikit-learn in all of `rounds` rounds of 10 clients, which have two classes each.

    Every client trains on `device`, with the plug-ins of `training`, and its update is compressed there.
    """
    card = own_card("digits")
    data = load(card)
    shares = [
        (prepare(data.train.x[rows], card, device), torch.tensor(data.train.y[rows], device=device))
        for rows in partition_train(data, PARTITION, CLIENTS, 0)
    ]
    plan, states = parse(training), dict[int, State]()
    model = plan.prepare(build_model("mlp", input_shape(card), card.num_classes, 0), 0).to(device)
    arrays = {name: to_numpy(tensor) for name, tensor in model.state_dict().items()}
    publisher = Publisher.begin(start_replica(layout_of(arrays), arrays))
    uplink, downlink = fedcomp.stc(density=0.01), fedcomp.stc(density=0.05)
    nodes = {number: Subscriber(node=number) for number in range(1, CLIENTS + 1)}
    sent_bytes = 0
    for server_round in range(rounds):
        replies: dict[int, Reply] = {}
        for number, node in nodes.items():
            data_down = publisher.message_to(number, str(uplink), server_round)[0].to_bytes()
            message, frames = parse_server_message(data_down)
            node.settle(message.acked, number)
            node.follow(message, frames)
            model.load_state_dict({name: torch.from_numpy(array) for name, array in node.held.arrays().items()})
            seed = server_round * CLIENTS + number
            states[number] = _train(model, *shares[number - 1], plan, states.get(number, {}), seed)
            data_up = node.update(node.learned(model.state_dict()), message, number, 0.0)
            replies[number] = publisher.parse_reply(number, data_up)
            sent_bytes += len(data_down) + len(data_up)
        updates = [reply.update for reply in replies.values() if reply.update is not None]
        change, _ = weighted_mean([(update, 1.0) for update in updates], publisher.replica.layout)
        for number, reply in replies.items():
            publisher.confirm(number, reply)
        publisher.publish(change, publisher.replica.exact, downlink, server_round)
        for number, reply in replies.items():
            publisher.acknowledge(number, reply, summed=False)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in publisher.replica.arrays().items()})
    x, y = prepare(data.test.x, card, device), torch.tensor(data.test.y, device=device)
    _, accuracy = evaluate(plan.inference(model), x, y, len(y))
    dense_bytes = 2 * 4 * publisher.replica.layout.n * CLIENTS * rounds
    return Result(accuracy, sent_bytes, dense_bytes, publisher.replica.fingerprint)


def _train(
    model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, plan: Plan, state: State, seed: int
) -> dict[str, Mapping[str, torch.Tensor]]:
    """Train for a round, and return what the client's plug-ins keep."""
    optimizer, generator = torch.optim.SGD(model.parameters(), LEARNING_RATE), torch.Generator().manual_seed(seed)
    training = plan.begin(model, state, seed=seed)
    for _ in range(STEPS):
        rows = torch.randint(len(y), (BATCH,), generator=generator).to(y.device)
        training.step(optimizer, x[rows], y[rows], functional.cross_entropy)
    return training.end()
