"""Dropout: which masks are drawn, how long they are held, what they reach."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from twin import combine, recurrent, weights_of, within
from variants import SOURCES, TARGETS, WIRINGS, build, config_of, logits_of, teacher_forcing

from gnmt.data.padding import collate
from gnmt.nn.lstm import ResidualLayer, SequenceDropout


def test_a_held_mask_is_the_same_at_all_times_and_keeps_the_mean():
    y = SequenceDropout(0.25)(torch.ones(4, 50, 200))
    assert (y == y[0]).all()
    assert not (y[:, 0] == y[:, 1]).all()
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert y.mean().item() == pytest.approx(1.0, abs=0.02)


def test_a_mask_that_is_not_held_is_drawn_anew_at_each_time_and_keeps_the_mean():
    y = SequenceDropout(0.25, held=False)(torch.ones(4, 50, 200))
    for t in range(3):
        # Two independent masks agree in a share 0.75^2 + 0.25^2 of the features.
        assert (y[t] == y[t + 1]).double().mean().item() == pytest.approx(0.625, abs=0.03)
    assert y.unique().tolist() == pytest.approx([0.0, 1 / 0.75])
    assert y.mean().item() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("held", [True, False])
def test_dropout_is_the_identity_in_evaluation_and_with_probability_0(held):
    x = torch.randn(3, 4, 5)
    assert torch.equal(SequenceDropout(0.5, held).eval()(x), x)
    assert torch.equal(SequenceDropout(0.0, held).train()(x), x)


def draw_mask(held, shape, probability):
    if not held:
        return F.dropout(torch.ones(shape, dtype=torch.float64), probability)
    keep = torch.empty(shape[1:], dtype=torch.float64).bernoulli_(1 - probability)
    return (keep / (1 - probability)).expand(shape)


@pytest.mark.parametrize("held", [True, False])
def test_dropout_reaches_the_recurrent_layer_and_not_the_shortcut(held):
    config = config_of("lstm-parallel-additive", first_residual_layer=1, dropout=0.4, hold_dropout_masks=held)
    layer = ResidualLayer(config, 4, 4, 1).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    x, weights = torch.randn(5, 3, 4, dtype=torch.float64), weights_of(layer)
    torch.manual_seed(5)
    found = layer.train()(x)
    torch.manual_seed(5)
    dropped = x * draw_mask(held, x.shape, 0.4)
    for b in range(3):
        outputs = recurrent("lstm", within(weights, "rnn"), list(dropped[:, b].numpy()))
        expected = [combine(config, weights, 1, h, y) for h, y in zip(x[:, b].numpy(), outputs, strict=True)]
        np.testing.assert_allclose(found[:, b].detach().numpy(), expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("wiring", WIRINGS)
def test_the_decoders_bottom_shortcut_is_never_dropped(wiring):
    network = build(f"lstm-{wiring}-additive", dropout=0.5, first_residual_layer=1)
    bottom, upper = network.decoder.layers
    for parameter in bottom.rnn.parameters():
        torch.nn.init.zeros_(parameter)  # the recurrent layer's output is 0 then, and the shortcut's all there is
    seen = []
    upper.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for mode in (True, False):
        logits_of(network.train(mode), collate(SOURCES, TARGETS))
    torch.testing.assert_close(seen[0], seen[1])
    assert seen[0].std() > 0.5


def context_masks(network, monkeypatch):
    """A training pass whose undropped contexts are all 1: the contexts that the bottom and the second layer read."""
    bottom, upper = network.decoder.layers
    step, seen, read = bottom.rnn.step, [], []

    def ones(query, memory):
        shape = (*query.shape[:2], network.decoder.context_size)
        return query.new_ones(shape), query.new_zeros(*query.shape[:2], memory.mask.shape[1])

    def recording_step(x, state):
        seen.append(x[:, network.config.hidden_size :])
        return step(x, state)

    monkeypatch.setattr(network.decoder.attention, "forward", ones)
    monkeypatch.setattr(bottom.rnn, "step", recording_step)
    upper.register_forward_pre_hook(lambda _, inputs: read.append(inputs[1]))
    logits_of(network, collate(SOURCES, TARGETS))
    return (torch.stack(seen) if seen else None), read[0]


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("wiring", WIRINGS)
def test_the_contexts_mask_is_held_over_time_and_the_same_for_all_its_readers(wiring, held, monkeypatch):
    network = build(f"lstm-{wiring}-additive", dropout=0.5, hold_dropout_masks=held).train()
    by_bottom, by_upper = context_masks(network, monkeypatch)
    assert by_upper.unique().tolist() == [0.0, 2.0]
    assert all(torch.equal(mask, by_upper[0]) for mask in by_upper[1:]) == held
    assert not torch.equal(by_upper[0, 0], by_upper[0, 1])
    if wiring == "gnmt":
        assert torch.equal(by_bottom, by_upper)
    elif wiring == "gnmt_v2":
        assert torch.equal(by_bottom[1:], by_upper[:-1])
        assert (by_bottom[0] == 0).all()


@pytest.mark.parametrize("wiring", WIRINGS)
def test_evaluation_knows_no_dropout(wiring):
    network = build(f"lstm-{wiring}-additive", dropout=0.5)
    without = build(f"lstm-{wiring}-additive", dropout=0.0)
    without.load_state_dict(network.state_dict())
    for found, expected in zip(
        *(teacher_forcing(n, SOURCES, TARGETS) for n in (network, without.train())), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
