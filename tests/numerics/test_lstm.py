"""The recurrent layers against independent implementations: NumPy, and torch's own packed sequences."""

import numpy as np
import pytest
import torch
from torch import nn

from gnmt.nn.lstm import LockedDropout, LSTMLayer, LSTMState, ResidualLSTM, reversal_index


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_lstm(x, lstm):
    """Hochreiter and Schmidhuber's cell, one time step and one row at a time, in float64."""
    w_ih, w_hh, b_ih, b_hh = (p.detach().numpy() for p in lstm.all_weights[0])
    steps, batch, _ = x.shape
    size = w_hh.shape[1]
    out = np.zeros((steps, batch, size))
    for b in range(batch):
        h, c = np.zeros(size), np.zeros(size)
        for t in range(steps):
            i, f, g, o = np.split(w_ih @ x[t, b] + b_ih + w_hh @ h + b_hh, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            out[t, b] = h
    return out


def numpy_layer_norm(x, norm):
    mean, std = x.mean(-1, keepdims=True), x.std(-1, keepdims=True)
    return (x - mean) / std * norm.weight.detach().numpy() + norm.bias.detach().numpy()


@pytest.mark.parametrize(("input_size", "context_size"), [(6, 0), (6, 3), (4, 0)])
def test_residual_layer_equals_numpy_twin(input_size, context_size):
    layer = (
        ResidualLSTM(input_size, 6, context_size=context_size, residual=True, layer_norm=True, dropout=0.5)
        .double()
        .eval()
    )
    nn.init.normal_(layer.norm.weight)
    x = torch.randn(5, 3, input_size, dtype=torch.float64)
    context = torch.randn(5, 3, context_size, dtype=torch.float64) if context_size else None
    joined = x if context is None else torch.cat([x, context], -1)
    shortcut = x.numpy() if input_size == 6 else x.numpy() @ layer.shortcut.weight.detach().numpy().T
    summed = numpy_lstm(joined.numpy(), layer.lstm.forward_lstm) + shortcut
    expected = numpy_layer_norm(summed, layer.norm)
    error = np.abs(layer(x, context).detach().numpy() - expected).max() / np.abs(expected).max()
    # The twin has no epsilon in its normalisation; torch's 1e-5 under the root is all that differs.
    assert error < 2e-4
    layer.norm.eps = 0.0
    error = np.abs(layer(x, context).detach().numpy() - expected).max() / np.abs(expected).max()
    assert error < 1e-12


def test_bidirectional_layer_equals_packed_torch_lstm():
    lengths = torch.tensor([7, 1, 4, 6])
    layer = LSTMLayer(5, 3, bidirectional=True)
    reference = nn.LSTM(5, 3, bidirectional=True)
    for ours, theirs in zip(
        [*layer.forward_lstm.all_weights[0], *layer.backward_lstm.all_weights[0]],
        [*reference.all_weights[0], *reference.all_weights[1]],
        strict=True,
    ):
        ours.data.copy_(theirs.data)
    x = torch.randn(7, 4, 5)
    packed, _ = reference(nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))
    expected, _ = nn.utils.rnn.pad_packed_sequence(packed)
    found = layer(x, reversal_index(lengths, 7))
    for b, length in enumerate(lengths):
        torch.testing.assert_close(found[:length, b], expected[:length, b])


def test_step_equals_sequence():
    layer = ResidualLSTM(4, 4, residual=True, layer_norm=True, dropout=0.3).eval()
    x = torch.randn(6, 3, 4)
    state = LSTMState(torch.zeros(3, 4), torch.zeros(3, 4))
    for t, expected in enumerate(layer(x)):
        y, state = layer.step(x[t], state)
        torch.testing.assert_close(y, expected)


def test_reversal_is_an_involution_and_leaves_padding():
    index = reversal_index(torch.tensor([3, 5]), 5)
    grid = torch.arange(10).view(5, 2)
    reversed_grid = grid.flatten()[index].view(5, 2)
    assert reversed_grid[:, 0].tolist() == [4, 2, 0, 6, 8]
    assert reversed_grid[:, 1].tolist() == [9, 7, 5, 3, 1]
    assert torch.equal(reversed_grid.flatten()[index], grid.flatten())


def test_locked_dropout_holds_its_mask_over_time_and_keeps_the_mean():
    dropout = LockedDropout(0.25)
    y = dropout(torch.ones(4, 50, 200))
    assert (y == y[0]).all()
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert y.mean().item() == pytest.approx(1.0, abs=0.02)
    assert torch.equal(dropout.eval()(y), y)
