"""SCAFFOLD (Karimireddy et al., ICML 2020) as a strategy of Flower, with all nodes in every round."""

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from scaffold_example.task import zeros


class Scaffold(FedAvg):
    """FedAvg that sends shared control variates, and adds the mean of the nodes' changes to them."""

    def __init__(self):
        super().__init__(fraction_evaluate=0.0)
        self.control = zeros()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add the shared control variates to each message."""
        messages = list(super().configure_train(server_round, arrays, config, grid))
        for message in messages:
            message.content["control"] = ArrayRecord(self.control)
        return messages

    def aggregate_train(self, server_round: int, replies: Iterable[Message]):
        """Take the changes of the control variates out of the replies, and average the models."""
        replies = list(replies)
        changes = [
            reply.content.pop("control").to_torch_state_dict()
            for reply in replies
            if reply.has_content() and "control" in reply.content
        ]
        if changes:
            self.control = {
                name: control + torch.stack([change[name] for change in changes]).mean(0)
                for name, control in self.control.items()
            }
        return super().aggregate_train(server_round, replies)
