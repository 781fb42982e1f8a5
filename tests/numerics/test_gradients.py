"""Autograd against numeric differentiation of the whole network: every parameter of every variant."""

import pytest
import torch
from variants import CELLS, VARIANTS, WIRINGS, build, logits_of

from gnmt.data.padding import collate
from gnmt.nn.loss import cross_entropy

STEP = 1e-3
BATCH = collate([[5, 6, 7], [8], [9, 10]], [[20], [21, 22], []])


def mean_loss(network):
    sums = cross_entropy(logits_of(network, BATCH), BATCH.target_output[BATCH.target_mask], 0.1)
    return sums.smoothed / sums.tokens


def direction_for(gradient):
    """A random direction of length 1 in which the loss does change: half of it is the gradient's own."""
    noise = torch.randn_like(gradient)
    direction = gradient / gradient.norm() + noise / noise.norm()
    return direction / direction.norm()


@torch.inference_mode()
def five_point_difference(function, parameter, direction):
    """(f(-2h) - 8 f(-h) + 8 f(h) - f(2h)) / 12h along a direction; its error is of order h^4."""
    original, total = parameter.clone(), 0.0
    for steps, weight in ((-2, 1), (-1, -8), (1, 8), (2, -1)):
        parameter.copy_(original + steps * STEP * direction)
        total += weight * float(function())
    parameter.copy_(original)
    return total / (12 * STEP)


def relative_errors(network, function):
    """Name -> |numeric - exact| / the larger of them, of each parameter."""
    function().backward()
    errors = {}
    for name, parameter in network.named_parameters():
        # No parameter of the network is without effect; a key bias would be, which is why the attention has none.
        assert parameter.grad is not None, name
        assert parameter.grad.norm() > 1e-7, name
        direction = direction_for(parameter.grad)
        numeric = five_point_difference(function, parameter, direction)
        exact = float((parameter.grad * direction).sum())
        errors[name] = abs(numeric - exact) / max(abs(numeric), abs(exact))
    return errors


def assert_small(variant, errors):
    name = max(errors, key=errors.get)
    print(f"{variant}: largest relative error {errors[name]:.1e}, of {name}, of {len(errors)} parameters")
    assert errors[name] < 1e-6


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_equal_numeric_differentiation(variant):
    network = build(variant)
    assert_small(variant, relative_errors(network, lambda: mean_loss(network)))


@pytest.mark.parametrize(("cell", "wiring"), list(zip(CELLS, WIRINGS, strict=True)))
def test_gradients_equal_numeric_differentiation_under_dropout(cell, wiring):
    variant = f"{cell}-{wiring}-additive"
    network = build(variant, dropout=0.2).train()

    def loss_under_the_same_masks():
        with torch.random.fork_rng():
            torch.manual_seed(1)
            return mean_loss(network)

    assert_small(f"{variant} in training", relative_errors(network, loss_under_the_same_masks))
