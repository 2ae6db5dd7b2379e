"""Recurrent layers step by step, with a function of each hidden state: torch's own layers do not expose these states."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from fedcomp.training.layer_inputs import replaced_forwards

Change = Callable[[Tensor], Tensor]
"""A function of a hidden state (N, H); the next step, the next layer and the output get its result instead."""
States = tuple[Tensor, ...]
"""The hidden state, and for an LSTM also the cell state."""


def changed_states(layers: Iterable[nn.RNNBase], change: Change) -> AbstractContextManager[None]:
    """Return a context in which the hidden states of recurrent layers are changed in each step; cell states stay."""
    return replaced_forwards((layer, partial(recurrent, layer, change)) for layer in layers)


def recurrent(
    layer: nn.RNNBase,
    change: Change,
    input: Tensor | PackedSequence,  # noqa: A002 - torch's name
    hx: Tensor | States | None = None,
) -> tuple[Tensor | PackedSequence, Tensor | States]:
    """Return the output and the last states of `layer`, in the layer's own form, with each hidden state changed.

    `input` is (T, N, I), (N, T, I) with ``batch_first``, (T, I), or a packed sequence.  Layers with projections are not
    supported.
    """
    states = hx if isinstance(hx, tuple) else None if hx is None else (hx,)
    if isinstance(input, PackedSequence):
        sizes = cast("list[int]", input.batch_sizes.tolist())
        if states is not None and input.sorted_indices is not None:
            states = tuple(each.index_select(1, input.sorted_indices) for each in states)
        steps, last = _layers(layer, change, input.data.split(sizes), states)  # type: ignore[no-untyped-call]
        if input.unsorted_indices is not None:
            last = tuple(each.index_select(1, input.unsorted_indices) for each in last)
        return input._replace(data=torch.cat(steps)), _as_returned(last)
    batched = input.dim() == 3
    if not batched and states is not None:
        states = tuple(each.unsqueeze(1) for each in states)
    time = 1 if layer.batch_first and batched else 0
    steps, last = _layers(layer, change, (input if batched else input.unsqueeze(1)).unbind(time), states)
    output = torch.stack(steps, time)
    if not batched:
        output, last = output.squeeze(1), tuple(each.squeeze(1) for each in last)
    return output, _as_returned(last)


def _as_returned(states: States) -> Tensor | States:
    hidden, *cells = states
    return states if cells else hidden


def _layers(
    layer: nn.RNNBase, change: Change, steps: Sequence[Tensor], first: States | None
) -> tuple[list[Tensor], States]:
    """Return the outputs of the last layer for inputs `steps`, each (N, I), and the last states of all layers and directions.

    The batches of later steps may be smaller: then they have the first rows.
    """
    ends: list[States] = []
    suffixes = ("", "_reverse") if layer.bidirectional else ("",)
    for number in range(layer.num_layers):
        if number and layer.dropout:
            steps = [functional.dropout(each, layer.dropout, layer.training) for each in steps]
        outputs: list[list[Tensor]] = []
        for suffix in suffixes:
            if first is None:
                zeros = steps[0].new_zeros(len(steps[0]), layer.hidden_size)
                begin: States = (zeros, zeros) if layer.mode == "LSTM" else (zeros,)
            else:
                begin = tuple(each[len(ends)] for each in first)
            found, end = _direction(layer, change, steps, begin, f"_l{number}{suffix}")
            outputs.append(found)
            ends.append(end)
        steps = [torch.cat(each, 1) for each in zip(*outputs, strict=True)]
    return list(steps), tuple(torch.stack(each) for each in zip(*ends, strict=True))


def _direction(
    layer: nn.RNNBase, change: Change, steps: Sequence[Tensor], states: States, name: str
) -> tuple[list[Tensor], States]:
    """Return the hidden states of one layer in one direction for each step, and its last states."""
    kinds = ("weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if layer.bias else ()))
    weights = [cast("Tensor", getattr(layer, kind + name)) for kind in kinds]
    reverse = name.endswith("_reverse")
    outputs: list[Tensor] = []
    for x in reversed(steps) if reverse else steps:
        count = len(x)
        hidden, *cell = _cell(layer.mode, x, tuple(each[:count] for each in states), weights)
        new = (change(hidden), *cell)
        outputs.append(new[0])
        states = tuple(torch.cat((mine, each[count:])) for mine, each in zip(new, states, strict=True))
    return outputs[::-1] if reverse else outputs, states


def _cell(mode: str, x: Tensor, states: States, weights: Sequence[Tensor]) -> States:
    if mode == "LSTM":
        return torch.lstm_cell(x, states, *weights)
    cells = {"GRU": torch.gru_cell, "RNN_TANH": torch.rnn_tanh_cell, "RNN_RELU": torch.rnn_relu_cell}
    return (cells[mode](x, states[0], *weights),)
