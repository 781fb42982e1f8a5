"""The residual recurrent stack: cell, shortcut, layer normalisation, dropout. Shapes: see `gnmt.nn`; N is any batch."""

import os
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnmt.config import GNMTConfig
from gnmt.nn.norm import LayerNorm

# What a layer carries from one time step to the next, each (N, H): hidden and cell state (LSTM), or the hidden state.
LayerState = tuple[Tensor, ...]

_MODULES: dict[str, Callable[[int, int], nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
_STEP_KERNELS: dict[str, Any] = {"gru": torch.gru_cell, "rnn": torch.rnn_tanh_cell}


def keep_compiled_kernels() -> None:
    """Enlarge oneDNN's cache of compiled kernels, unless the user set its size; call it before the first product.

    Kernels are compiled anew for each shape of a batch, and by its own default oneDNN forgets them within an epoch.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")


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


def reverse(x: Tensor, reversal: Tensor) -> Tensor:
    """Reverse each row of (T, B, ...) within its own length; `reversal` is the rows' `reversal_index`."""
    return x.flatten(0, 1).index_select(0, reversal).view_as(x)


class SequenceDropout(nn.Module):
    """Dropout of features, with one mask for all time steps of a sequence or with a fresh one at each.

    One mask a sequence is the form of Gal and Ghahramani (2016, section 4); it also costs T times fewer random numbers.

    Args:
        probability: of dropping a feature.
        held: whether the mask is held over time.
    """

    def __init__(self, probability: float, held: bool = True) -> None:
        super().__init__()
        self.probability = probability
        self.held = held

    def forward(self, x: Tensor) -> Tensor:
        """Mask (T, B, H) over features; identity when not training."""
        if not self.training or self.probability == 0.0:
            return x
        if not self.held:
            return F.dropout(x, self.probability)
        keep = 1.0 - self.probability
        return x * x.new_empty(x.shape[1:]).bernoulli_(keep).div_(keep)


class RecurrentLayer(nn.Module):
    """One recurrent layer, in one direction or in both with their outputs concatenated.

    Whole sequences go through torch's fused kernels unpacked: padding stands at the end, so that it
    cannot reach a valid position of the forward direction, and the backward direction reads each row reversed within
    its own length. Sequences packed in torch's own way would fall back to one small product per time step on CPUs.

    Args:
        cell: `lstm`, `gru` or `rnn` (tanh).
        input_size: width of the inputs.
        hidden_size: H of each direction.
        bidirectional: whether the layer reads in both directions.
    """

    def __init__(self, cell: str, input_size: int, hidden_size: int, *, bidirectional: bool = False) -> None:
        super().__init__()
        self.cell = cell
        self.hidden_size = hidden_size
        self.output_size = 2 * hidden_size if bidirectional else hidden_size
        self.forward_rnn = _MODULES[cell](input_size, hidden_size)
        self.backward_rnn = _MODULES[cell](input_size, hidden_size) if bidirectional else None

    def forward(self, x: Tensor, reversal: Tensor | None = None) -> Tensor:
        """Map (T, B, input) to (T, B, output) from a zero state.

        Args:
            x: inputs, padding at the end of each row.
            reversal: `reversal_index` of the rows' lengths; only a bidirectional layer needs it.
        """
        y: Tensor = self.forward_rnn(x)[0]
        if self.backward_rnn is None:
            return y
        assert reversal is not None
        z: Tensor = self.backward_rnn(reverse(x, reversal))[0]
        return torch.cat([y, reverse(z, reversal)], dim=-1)

    def zero_state(self, like: Tensor, rows: int) -> LayerState:
        """The state at the start, for `rows` rows, on the device and of the type of `like`."""
        zeros = like.new_zeros(rows, self.hidden_size)
        return (zeros, zeros) if self.cell == "lstm" else (zeros,)

    def step(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """One time step of a unidirectional layer.

        Args:
            x: (N, input).
            state: of N rows.

        Returns:
            outputs (N, H) and the next state.
        """
        weights = self.forward_rnn.all_weights[0]
        if self.cell == "lstm":
            hidden, cell = torch.lstm_cell(x, state, *weights)
            return hidden, (hidden, cell)
        hidden = _STEP_KERNELS[self.cell](x, *state, *weights)
        return hidden, (hidden,)


class ResidualLayer(nn.Module):
    """h' = LayerNorm(f([dropout(h); context]) + shortcut(h)), f the recurrent layer; no context in the shortcut.

    The shortcut is the identity where widths are equal, else nothing (`add`) or a learned projection (`project`).
    Normalisation stands behind the sum, so that what enters the next layer, and its shortcut, is normalised.

    Args:
        config: cell, shortcut, normalisation, dropout.
        input_size: width of h.
        hidden_size: H of the recurrent layer.
        number: of the layer in its stack, from 1; shortcuts begin at `config.first_residual_layer`.
        context_size: width of the context concatenated to the input; 0 for none.
        bidirectional: whether the layer reads in both directions.
    """

    def __init__(
        self,
        config: GNMTConfig,
        input_size: int,
        hidden_size: int,
        number: int,
        *,
        context_size: int = 0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.dropout = SequenceDropout(config.dropout, config.hold_dropout_masks)
        self.rnn = RecurrentLayer(config.cell, input_size + context_size, hidden_size, bidirectional=bidirectional)
        self.output_size = self.rnn.output_size
        self.shortcut: nn.Module | None = None
        if config.shortcut != "none" and number >= config.first_residual_layer:
            if input_size == self.output_size:
                self.shortcut = nn.Identity()
            elif config.shortcut == "project":
                self.shortcut = nn.Linear(input_size, self.output_size, bias=False)
        self.norm = LayerNorm(self.output_size) if config.layer_norm else nn.Identity()

    def forward(self, h: Tensor, context: Tensor | None = None, reversal: Tensor | None = None) -> Tensor:
        """Map (T, B, input) to (T, B, output); `context` is (T, B, context) and already dropped out."""
        return self.combine(self.rnn(join(self.dropout(h), context), reversal), h)

    def combine(self, y: Tensor, h: Tensor) -> Tensor:
        """Shortcut and normalisation: the recurrent layer's output y (..., output) for its input h (..., input)."""
        if self.shortcut is not None:
            y = y + self.shortcut(h)
        return cast("Tensor", self.norm(y))


def join(h: Tensor, context: Tensor | None) -> Tensor:
    """The input of a recurrent layer: h and, if there is one, the context behind it, along the features."""
    return h if context is None else torch.cat([h, context], dim=-1)
