"""The recurrent layers against independent implementations: the NumPy twin, and torch's own packed sequences."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from twin import recurrent, residual_layer, weights_of
from variants import CELLS

from gnmt.config import GNMTConfig
from gnmt.inference.layers import LayerStep
from gnmt.nn.lstm import RecurrentLayer, ResidualLayer, reversal_index

LENGTHS = torch.tensor([5, 1, 3, 4])
HIDDEN, CONTEXT = 3, 2

SHORTCUTS = ("none", "add", "project")
FORMS = pytest.mark.parametrize(
    ("shortcut", "layer_norm", "context_size", "equal_widths"),
    list(itertools.product(SHORTCUTS, (False, True), (0, CONTEXT), (False, True))),
)


def random_layer(cell, shortcut, layer_norm, context_size, equal_widths, bidirectional=False):
    """A layer in float64 for evaluation with dropout in its configuration, and that configuration."""
    config = GNMTConfig(cell=cell, shortcut=shortcut, layer_norm=layer_norm, first_residual_layer=2, dropout=0.5)
    output = HIDDEN * (1 + bidirectional)
    layer = ResidualLayer(
        config, output if equal_widths else 4, HIDDEN, 2, context_size=context_size, bidirectional=bidirectional
    )
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7)
    return layer.double().eval(), config


def random_rows(size, padding=torch.nan):
    """(S, B, size) with `padding` behind each row's end."""
    x = torch.randn(int(LENGTHS.max()), len(LENGTHS), size, dtype=torch.float64)
    return x.masked_fill((torch.arange(len(x))[:, None] >= LENGTHS)[..., None], padding)


def input_size_of(layer, context_size):
    return layer.rnn.forward_rnn.input_size - context_size


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", CELLS)
@FORMS
def test_every_form_of_a_layer_equals_the_twin(cell, bidirectional, shortcut, layer_norm, context_size, equal_widths):
    layer, config = random_layer(cell, shortcut, layer_norm, context_size, equal_widths, bidirectional)
    x = random_rows(input_size_of(layer, context_size))
    context = random_rows(context_size) if context_size else None
    found, weights = layer(x, context, reversal_index(LENGTHS, len(x))), weights_of(layer)
    for b, length in enumerate(LENGTHS):
        inputs, contexts = (None if y is None else list(y[:length, b].numpy()) for y in (x, context))
        expected = residual_layer(config, weights, 2, inputs, contexts, bidirectional)
        np.testing.assert_allclose(found[:length, b].detach().numpy(), expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(
    ("shortcut", "number", "input_size", "bidirectional", "expected"),
    [
        ("none", 3, 4, False, None),
        ("add", 3, 4, False, nn.Identity),
        ("add", 3, 8, True, nn.Identity),
        ("add", 3, 5, False, None),
        ("project", 3, 4, False, nn.Identity),
        ("project", 3, 5, False, nn.Linear),
        ("project", 3, 4, True, nn.Linear),
        ("add", 2, 4, False, None),
        ("project", 2, 5, False, None),
    ],
)
def test_the_shortcut_depends_on_the_widths_and_the_layers_number(
    shortcut, number, input_size, bidirectional, expected
):
    config = GNMTConfig(shortcut=shortcut, first_residual_layer=3)
    layer = ResidualLayer(config, input_size, 4, number, bidirectional=bidirectional)
    assert type(layer.shortcut) is (expected or type(None))


@pytest.mark.parametrize("cell", CELLS)
@FORMS
def test_step_equals_sequence(cell, shortcut, layer_norm, context_size, equal_widths):
    layer, _ = random_layer(cell, shortcut, layer_norm, context_size, equal_widths)
    x = random_rows(input_size_of(layer, context_size), padding=0.0)
    context = random_rows(context_size, padding=0.0) if context_size else None
    state = layer.rnn.zero_state(x, len(LENGTHS))
    step = LayerStep(layer, "fp32")
    for t, expected in enumerate(layer(x, context)):
        with torch.inference_mode():
            y, state = step(x[t], state, *([] if context is None else [context[t]]))
        torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("cell", CELLS)
def test_the_backward_direction_alone_equals_the_twin_on_the_reversed_row(cell):
    layer = RecurrentLayer(cell, 4, HIDDEN, bidirectional=True).double()
    x, weights = random_rows(4), weights_of(layer)
    found = layer(x, reversal_index(LENGTHS, len(x)))[..., HIDDEN:]
    backward = {name.replace("backward_rnn", "forward_rnn"): w for name, w in weights.items() if "backward" in name}
    for b, length in enumerate(LENGTHS):
        expected = recurrent(cell, backward, list(x[:length, b].flip(0).numpy()))
        np.testing.assert_allclose(found[:length, b].flip(0).detach().numpy(), expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("cell", "module"), [("lstm", nn.LSTM), ("gru", nn.GRU), ("rnn", nn.RNN)])
def test_bidirectional_layer_equals_packed_torch_module(cell, module):
    lengths = torch.tensor([7, 1, 4, 6])
    layer = RecurrentLayer(cell, 5, 3, bidirectional=True)
    reference = module(5, 3, bidirectional=True)
    for ours, theirs in zip(
        [*layer.forward_rnn.all_weights[0], *layer.backward_rnn.all_weights[0]],
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


def test_reversal_is_an_involution_and_leaves_padding():
    index = reversal_index(torch.tensor([3, 5]), 5)
    grid = torch.arange(10).view(5, 2)
    reversed_grid = grid.flatten()[index].view(5, 2)
    assert reversed_grid[:, 0].tolist() == [4, 2, 0, 6, 8]
    assert reversed_grid[:, 1].tolist() == [9, 7, 5, 3, 1]
    assert torch.equal(reversed_grid.flatten()[index], grid.flatten())
