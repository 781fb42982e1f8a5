"""The parameters at the start: their distributions, as the configuration says."""

import pytest
import torch
from torch import nn
from variants import CELLS

from gnmt.config import GNMTConfig
from gnmt.nn.gnmt import GNMT
from gnmt.nn.norm import LayerNorm

RANGE = 0.07
PAPER = {
    "tie_embeddings": False,
    "share_embeddings": False,
    "layer_norm": False,
    "forget_bias": 0.0,
    "init_range": 0.04,
}


def fresh(**settings):
    sizes = {"vocab_size": 200, "hidden_size": 32, "num_encoder_layers": 3, "num_decoder_layers": 3}
    return GNMT(GNMTConfig(**{**sizes, "init_range": RANGE, "first_residual_layer": 2, **settings}))


def is_uniform(name):
    """Whether a parameter has no distribution of its own."""
    special = ("embedding", "output.weight", "norm.", "attention.g")
    return not name.startswith(("source_embedding", "target_embedding")) and not any(s in name for s in special)


def assert_uniform(tensor, radius):
    values = tensor.detach().flatten().double()
    assert values.abs().max() <= radius
    assert values.abs().max() > 0.8 * radius
    assert abs(values.mean()) < 4 * radius / (3 * len(values)) ** 0.5
    assert values.std() == pytest.approx(radius / 3**0.5, rel=4 / len(values) ** 0.5)


def uniform_parameters(network):
    return {name: p for name, p in network.named_parameters() if is_uniform(name) and "context_output" not in name}


@pytest.mark.parametrize("attention", ["additive", "dot"])
@pytest.mark.parametrize("cell", CELLS)
def test_parameters_without_a_rule_of_their_own_are_uniform(cell, attention):
    network = fresh(cell=cell, attention=attention, forget_bias=0.0)
    parameters = uniform_parameters(network)
    assert {"output.bias", "decoder.attention.query_projection.weight"} < set(parameters)
    for parameter in parameters.values():
        assert_uniform(parameter, RANGE)
    assert_uniform(torch.cat([parameter.flatten() for parameter in parameters.values()]), RANGE)


def test_untied_embeddings_and_the_softmax_are_uniform():
    network = fresh(tie_embeddings=False, share_embeddings=False)
    for weight in (network.source_embedding.weight, network.target_embedding.weight, network.output.weight):
        assert_uniform(weight, RANGE)


@pytest.mark.parametrize("bias", [1.0, -2.0])
def test_the_forget_bias_is_added_to_the_input_bias_of_each_forget_gate_alone(bias):
    layers = [module for module in fresh(forget_bias=bias).modules() if isinstance(module, nn.LSTM)]
    assert len(layers) == 7
    for layer in layers:
        i, forget, g, o = layer.bias_ih_l0.chunk(4)
        assert_uniform(forget - bias, RANGE + 1e-6)
        assert_uniform(torch.cat([i, g, o, layer.bias_hh_l0]), RANGE)


@pytest.mark.parametrize("cell", ["gru", "rnn"])
def test_the_forget_bias_changes_no_other_cell(cell):
    torch.manual_seed(1)
    expected = fresh(cell=cell, forget_bias=0.0).state_dict()
    torch.manual_seed(1)
    found = fresh(cell=cell, forget_bias=5.0).state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("share", [True, False])
def test_tied_embeddings_are_normal_with_rows_of_length_1(share):
    network = fresh(share_embeddings=share)
    assert network.output.weight is network.target_embedding.weight
    assert (network.source_embedding is network.target_embedding) == share
    for embedding in (network.source_embedding, network.target_embedding):
        scaled = embedding.weight.detach() * 32**0.5
        assert scaled.mean().item() == pytest.approx(0.0, abs=0.05)
        assert scaled.std().item() == pytest.approx(1.0, abs=0.05)
        assert (scaled.abs() < 1).float().mean().item() == pytest.approx(0.6827, abs=0.02)
        assert embedding.weight.norm(dim=1).mean().item() == pytest.approx(1.0, abs=0.05)


def test_normalisation_starts_as_the_identity_of_what_is_normalised_and_g_at_the_root():
    network = fresh()
    norms = [module for module in network.modules() if isinstance(module, LayerNorm)]
    assert len(norms) == 6
    for norm in norms:
        assert (norm.gain == 1).all()
        assert (norm.bias == 0).all()
    assert network.decoder.attention.g.item() == pytest.approx(32**-0.5)


def test_resetting_forgets_all_that_was_there():
    torch.manual_seed(3)
    network = fresh()
    expected = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(9.0)
    network.reset_parameters()
    for name, tensor in network.state_dict().items():
        assert tensor.shape == expected[name].shape
        assert tensor.abs().max() < 5, name


def test_the_papers_settings_start_all_but_the_attentions_g_within_its_range():
    for name, parameter in fresh(**PAPER).named_parameters():
        if name == "decoder.attention.g":
            assert parameter.item() == pytest.approx(32**-0.5)
        else:
            assert_uniform(parameter, 0.04)


@pytest.mark.parametrize("context", ["gnmt", "gnmt_v2", "parallel"])
def test_the_projection_of_a_single_layers_context_is_uniform_too(context):
    assert_uniform(fresh(num_decoder_layers=1, wiring=context).decoder.context_output.weight, RANGE)
