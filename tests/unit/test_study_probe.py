"""The probes against gradients computed in another way."""

import itertools

import pytest
import torch

from gnmt.config import GNMTConfig
from gnmt.data.padding import collate
from gnmt.nn.gnmt import GNMT
from gnmt.study.probe import loss_sums, probe_independence, probe_layers, probe_time

BATCH = collate([[5, 6, 7, 8, 9, 4], [6, 7, 8, 9]], [[5, 6], [7]])


def network_of(**settings):
    return GNMT(
        GNMTConfig(
            vocab_size=12, hidden_size=6, num_encoder_layers=3, num_decoder_layers=2, dropout=0.0,
            num_bidirectional_layers=0, **settings,
        )
    ).double()  # fmt: skip


def test_the_gradient_of_a_layer_is_that_of_a_shift_of_its_output():
    network = network_of(init_range=0.4)
    found = probe_layers(network, BATCH)
    for number, layer in enumerate(network.encoder.layers):
        shift = torch.zeros(len(BATCH.source), 2, 6, dtype=torch.float64, requires_grad=True)
        handle = layer.register_forward_hook(lambda module, inputs, output, shift=shift: output + shift)
        sums = loss_sums(network, BATCH)
        (gradient,) = torch.autograd.grad(sums.smoothed / sums.tokens, shift)
        handle.remove()
        assert found["encoder_gradient"][number] == pytest.approx(float(gradient.norm()), rel=1e-9)
    assert len(found["decoder_gradient"]) == 2
    assert all(parameter.grad is None for parameter in network.parameters())


def test_a_layer_that_halves_what_it_keeps_has_a_factor_of_a_half_per_step():
    network = network_of(cell="rnn")
    rnn = network.encoder.layers[0].rnn.forward_rnn
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(0.5 * torch.eye(6))
        rnn.weight_ih_l0.mul_(1e-4)
        rnn.bias_ih_l0.zero_()
        rnn.bias_hh_l0.zero_()
    norms = probe_time(network, BATCH)
    assert len(norms) == 5  # the shorter source with its eos
    for later, earlier in itertools.pairwise(norms):
        assert earlier / later == pytest.approx(0.5, rel=1e-4)


def test_rows_do_not_depend_on_their_batch():
    assert probe_independence(network_of(layer_norm=True), BATCH) < 1e-12
