"""One time step of a recurrent layer with prepared weights. N rows, I inputs, H hidden; gates as in `torch.nn`."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gnmt.inference.products import build_product
from gnmt.nn.lstm import LayerState, ResidualLayer

# Maps parts of the inputs, side by side (N, I), and the state to the next one, whose first tensor (N, H) is the output.
Cell = Callable[[Sequence[Tensor], LayerState], LayerState]


def lstm_weights(rnn: nn.RNNBase) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of input (4H, I) and state (4H, H) and the bias (4H,), with the gates in the order of `lstm_state`."""
    weight_ih, weight_hh, bias_ih, bias_hh = rnn.all_weights[0]
    # torch's order is input, forget, cell, output; here the three sigmoids stand together.
    order = [0, 1, 3, 2]
    ordered = (
        torch.cat([parameter.detach().chunk(4)[i] for i in order])
        for parameter in (weight_ih, weight_hh, bias_ih + bias_hh)
    )
    return next(ordered), next(ordered), next(ordered)


def lstm_state(gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Output and cell (N, H); `gates` (N, 4H), the sums for input, forget, output and cell, are overwritten."""
    size = cell.shape[1]
    input_gate, forget_gate, output_gate = gates[:, : 3 * size].sigmoid_().chunk(3, dim=1)
    cell = torch.addcmul(forget_gate * cell, input_gate, gates[:, 3 * size :].tanh_())
    return output_gate * cell.tanh(), cell


class _LSTMCell:
    """All four gates in one product of [x; h]."""

    def __init__(self, rnn: nn.RNNBase, precision: str) -> None:
        of_input, of_state, bias = lstm_weights(rnn)
        self._gates = build_product(torch.cat([of_input, of_state], dim=1), bias, precision)

    def __call__(self, inputs: Sequence[Tensor], state: LayerState) -> LayerState:
        hidden, cell = state
        return lstm_state(self._gates(torch.cat([*inputs, hidden], dim=1)), cell)


class _GRUCell:
    """Two products, because the reset gate multiplies only one part of the candidate."""

    def __init__(self, rnn: nn.RNNBase, precision: str) -> None:
        weight_ih, weight_hh, bias_ih, bias_hh = rnn.all_weights[0]
        self._of_inputs = build_product(weight_ih, bias_ih, precision)
        self._of_hidden = build_product(weight_hh, bias_hh, precision)

    def __call__(self, inputs: Sequence[Tensor], state: LayerState) -> LayerState:
        (hidden,) = state
        of_inputs, of_hidden = (
            y.chunk(3, dim=1) for y in (self._of_inputs(torch.cat(tuple(inputs), dim=1)), self._of_hidden(hidden))
        )
        reset, update = (torch.sigmoid(a + b) for a, b in zip(of_inputs[:2], of_hidden[:2], strict=True))
        candidate = torch.addcmul(of_inputs[2], reset, of_hidden[2]).tanh_()
        return (torch.lerp(candidate, hidden, update),)


class _TanhCell:
    def __init__(self, rnn: nn.RNNBase, precision: str) -> None:
        weight_ih, weight_hh, bias_ih, bias_hh = rnn.all_weights[0]
        self._sum = build_product(torch.cat([weight_ih, weight_hh], dim=1), bias_ih + bias_hh, precision)

    def __call__(self, inputs: Sequence[Tensor], state: LayerState) -> LayerState:
        return (self._sum(torch.cat([*inputs, *state], dim=1)).tanh_(),)


_CELLS: dict[str, Callable[[nn.RNNBase, str], Cell]] = {"lstm": _LSTMCell, "gru": _GRUCell, "rnn": _TanhCell}


class LayerStep:
    """One step of a `ResidualLayer` that reads one way: recurrent cell, shortcut, normalisation; no dropout."""

    def __init__(self, layer: ResidualLayer, precision: str) -> None:
        self._cell = _CELLS[layer.rnn.cell](layer.rnn.forward_rnn, precision)
        self._combine = layer.combine

    def __call__(self, h: Tensor, state: LayerState, *context: Tensor) -> tuple[Tensor, LayerState]:
        """Map h (N, input), the state and what else the layer reads (N, M) to (N, H) and the next state."""
        state = self._cell((h, *context), state)
        return self._combine(state[0], h), state
