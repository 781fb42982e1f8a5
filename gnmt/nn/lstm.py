"""The residual recurrent stack: LSTM, shortcut, layer normalisation, dropout. Shapes: see `gnmt.nn`; N is any batch."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LSTMState(NamedTuple):
    """Hidden and cell state of one layer, each (N, H)."""

    hidden: Tensor
    cell: Tensor


def reversal_index(lengths: Tensor, size: int) -> Tensor:
    """Flat positions that reverse each row of a (size, B) grid within its own length; padding stays in place.

    Args:
        lengths: (B,) int64, valid positions of each row.
        size: padded length.

    Returns:
        (size * B,) int64; reversing twice gives the original order.
    """
    time = torch.arange(size, device=lengths.device)[:, None]
    reversed_time = torch.where(time < lengths, lengths - 1 - time, time)
    batch = len(lengths)
    return (reversed_time * batch + torch.arange(batch, device=lengths.device)).flatten()


class LockedDropout(nn.Module):
    """Dropout with one mask for all time steps of a sequence (Gal and Ghahramani 2016, section 4).

    Drawing one mask a sentence also costs T times fewer random numbers than drawing one a token.
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Mask (T, B, H) over features, the same at every time step; identity when not training."""
        if not self.training or self.probability == 0.0:
            return x
        keep = 1.0 - self.probability
        return x * x.new_empty(x.shape[1:]).bernoulli_(keep).div_(keep)


class LSTMLayer(nn.Module):
    """One LSTM layer, in one direction or in both with their outputs concatenated.

    Whole sequences go through the fused kernel of `torch.nn.LSTM` unpacked: padding stands at the end, so that it
    cannot reach a valid position of the forward direction, and the backward direction reads each row reversed within
    its own length. Sequences packed in torch's own way would fall back to one small product per time step on CPUs.
    """

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool = False) -> None:
        super().__init__()
        self.output_size = 2 * hidden_size if bidirectional else hidden_size
        self.forward_lstm = nn.LSTM(input_size, hidden_size)
        self.backward_lstm = nn.LSTM(input_size, hidden_size) if bidirectional else None

    def forward(self, x: Tensor, reversal: Tensor | None = None) -> Tensor:
        """Map (T, B, input) to (T, B, output) from a zero state.

        Args:
            x: inputs, padding at the end of each row.
            reversal: `reversal_index` of the rows' lengths; only a bidirectional layer needs it.
        """
        y, _ = self.forward_lstm(x)
        if self.backward_lstm is None:
            return y
        assert reversal is not None
        z, _ = self.backward_lstm(x.flatten(0, 1).index_select(0, reversal).view_as(x))
        z = z.flatten(0, 1).index_select(0, reversal).view_as(y)
        return torch.cat([y, z], dim=-1)

    def step(self, x: Tensor, state: LSTMState) -> tuple[Tensor, LSTMState]:
        """One time step of a unidirectional layer.

        Args:
            x: (N, input).
            state: (N, H) each.
        """
        weight_ih, weight_hh, bias_ih, bias_hh = self.forward_lstm.all_weights[0]
        gates = F.linear(x, weight_ih, bias_ih) + F.linear(state.hidden, weight_hh, bias_hh)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        cell = forget_gate.sigmoid() * state.cell + input_gate.sigmoid() * candidate.tanh()
        hidden = output_gate.sigmoid() * cell.tanh()
        return hidden, LSTMState(hidden, cell)


class ResidualLSTM(nn.Module):
    """h' = LayerNorm(LSTM(dropout([h; context])) + shortcut(h)); the shortcut never sees the context.

    The residual connection is h_t^(l) = f(h_t^(l-1)) + h_t^(l-1), with a learned projection where the widths differ.
    Deviation from the formula (h - mean) / (std + eps): torch's fused kernel has its eps under the root.

    Args:
        input_size: width of h.
        hidden_size: H of the LSTM.
        context_size: width of the context concatenated to the input; 0 for none.
        bidirectional: whether the layer reads in both directions.
        residual: whether there is a shortcut.
        layer_norm: whether the sum is normalised.
        dropout: probability for the LSTM's input.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        context_size: int = 0,
        bidirectional: bool = False,
        residual: bool,
        layer_norm: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.dropout = LockedDropout(dropout)
        self.lstm = LSTMLayer(input_size + context_size, hidden_size, bidirectional)
        self.output_size = self.lstm.output_size
        self.shortcut: nn.Module | None = None
        if residual:
            same_width = input_size == self.output_size
            self.shortcut = nn.Identity() if same_width else nn.Linear(input_size, self.output_size, bias=False)
        self.norm = nn.LayerNorm(self.output_size) if layer_norm else nn.Identity()

    def forward(self, h: Tensor, context: Tensor | None = None, reversal: Tensor | None = None) -> Tensor:
        """Map (T, B, input) to (T, B, output); `context` is (T, B, context) and already dropped out."""
        return self._combine(self.lstm(self._join(self.dropout(h), context), reversal), h)

    def step(self, h: Tensor, state: LSTMState, context: Tensor | None = None) -> tuple[Tensor, LSTMState]:
        """One time step without dropout: (N, input) to (N, output), with the layer's next state."""
        y, state = self.lstm.step(self._join(h, context), state)
        return self._combine(y, h), state

    @staticmethod
    def _join(h: Tensor, context: Tensor | None) -> Tensor:
        return h if context is None else torch.cat([h, context], dim=-1)

    def _combine(self, y: Tensor, h: Tensor) -> Tensor:
        if self.shortcut is not None:
            y = y + self.shortcut(h)
        return self.norm(y)
