"""The encoder in int8: input products over whole sequences, state products step by step. Shapes: see `gnmt.nn`.

In float32 torch's kernels over whole sequences are as fast; they have no int8 form that is kept up.
"""

from typing import cast

import torch
from torch import Tensor, nn

from gnmt.inference.layers import lstm_state, lstm_weights
from gnmt.inference.products import Int8Product, Int8StateProduct
from gnmt.nn.encoder import Encoder
from gnmt.nn.lstm import ResidualLayer, reversal_index, reverse


class _Direction:
    """An LSTM that reads a whole sequence."""

    def __init__(self, rnn: nn.RNNBase) -> None:
        of_input, of_state, bias = lstm_weights(rnn)
        self._of_input, self._of_state = Int8Product(of_input, bias), Int8StateProduct(of_state)
        self._size = of_state.shape[1]

    def __call__(self, x: Tensor) -> Tensor:
        """(S, B, I) to outputs (S, B, H)."""
        gates = self._of_input(x.flatten(0, 1)).unflatten(0, x.shape[:2])
        outputs = x.new_empty(*x.shape[:2], self._size)
        hidden = cell = x.new_zeros(x.shape[1], self._size)
        for i, of_input in enumerate(gates):
            hidden, cell = lstm_state(self._of_state(hidden).add_(of_input), cell)
            outputs[i] = hidden
        return outputs


class Int8Encoder:
    """A trained encoder of LSTM layers in evaluation mode."""

    def __init__(self, encoder: Encoder) -> None:
        self._layers = [
            (
                _Direction(layer.rnn.forward_rnn),
                None if layer.rnn.backward_rnn is None else _Direction(layer.rnn.backward_rnn),
                layer.combine,
            )
            for layer in cast("list[ResidualLayer]", list(encoder.layers))
        ]

    def __call__(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """As `Encoder.forward`."""
        reversal = reversal_index(lengths, embedded.shape[0])
        h = embedded
        for forward, backward, combine in self._layers:
            y = forward(h)
            if backward is not None:
                y = torch.cat([y, reverse(backward(reverse(h, reversal)), reversal)], dim=-1)
            h = combine(y, h)
        return h
