"""Gradient flow by layers: nothing is left out, and the norms are right."""

import pytest
import torch

from gnmt.config import GNMTConfig
from gnmt.diagnostics import gradients, layer_parameters, norms, plot_gradient_flow
from gnmt.nn.gnmt import GNMT

TIED = [{}, {"tie_embeddings": False}, {"tie_embeddings": False, "share_embeddings": False}]


def small_network(**settings):
    return GNMT(GNMTConfig(vocab_size=20, hidden_size=8, num_encoder_layers=3, num_decoder_layers=2, **settings))


@pytest.mark.parametrize("settings", TIED)
def test_every_parameter_belongs_to_one_layer(settings):
    network = small_network(**settings)
    groups = layer_parameters(network)
    assert list(groups) == [
        "encoder_1", "encoder_2", "encoder_3", "decoder_1", "decoder_2", "attention", "embedding", "output",
    ]  # fmt: skip
    grouped = [id(parameter) for group in groups.values() for parameter in group]
    assert sorted(grouped) == sorted(id(parameter) for parameter in network.parameters())


def test_norms_are_over_all_tensors_of_a_group_and_sides_over_their_layers():
    groups = {"encoder_1": [torch.tensor([3.0])], "encoder_2": [torch.tensor([[4.0]]), torch.zeros(2)], "output": []}
    assert norms(groups) == {"encoder_1": 3.0, "encoder_2": 4.0, "output": 0.0, "encoder": 5.0, "decoder": 0.0}


def test_gradients_are_those_of_the_backward_pass():
    network = small_network()
    tokens, mask = torch.randint(4, 20, (5, 2)), torch.ones(5, 2, dtype=torch.bool)
    network(tokens, torch.tensor([5, 5]), tokens, mask).square().sum().backward()
    found = norms(gradients(layer_parameters(network)))
    whole = torch.nn.utils.get_total_norm([parameter.grad for parameter in network.parameters()])
    parts = ("encoder", "decoder", "attention", "embedding", "output")
    assert sum(found[name] ** 2 for name in parts) ** 0.5 == pytest.approx(float(whole), rel=1e-5)
    expected = torch.cat([p.grad.flatten() for p in network.encoder.layers[1].parameters()]).norm()
    assert found["encoder_2"] == pytest.approx(float(expected), rel=1e-5)


def test_the_picture_is_a_png(tmp_path):
    network = small_network()
    values = norms(layer_parameters(network))
    row = {f"{quantity}/{name}": value for quantity in ("grad_norm", "update_ratio") for name, value in values.items()}
    plot_gradient_flow([{"step": step, "clipped_share": 0.5, **row} for step in (1, 2)], tmp_path / "flow.png")
    assert (tmp_path / "flow.png").read_bytes().startswith(b"\x89PNG")
