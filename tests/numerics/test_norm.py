"""The layer normalisation against its formula, and its hand-made gradient against numeric differentiation."""

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from twin import layer_norm

from gnmt.nn.norm import LayerNorm

BOTH_EPS = pytest.mark.parametrize("eps", [1e-5, 0.3])


def random_norm(size, eps=1e-5):
    norm = LayerNorm(size, eps)
    nn.init.normal_(norm.gain)
    nn.init.normal_(norm.bias)
    return norm


@BOTH_EPS
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_normalisation_equals_its_formula(eps, scale):
    norm = random_norm(7, eps).double()
    x = scale * (torch.randn(2, 3, 7, dtype=torch.float64) + 0.5)
    gain, bias = (parameter.detach().numpy() for parameter in (norm.gain, norm.bias))
    expected = [layer_norm(row, gain, bias, eps) for row in x.view(-1, 7).numpy()]
    np.testing.assert_allclose(norm(x).detach().view(-1, 7).numpy(), expected, rtol=1e-9, atol=1e-12)


def test_the_default_eps_is_the_twins():
    norm = random_norm(5).double()
    x = 1e-4 * torch.randn(5, dtype=torch.float64)[None]
    expected = layer_norm(x[0].numpy(), norm.gain.detach().numpy(), norm.bias.detach().numpy())
    np.testing.assert_allclose(norm(x)[0].detach().numpy(), expected, rtol=1e-9)


@BOTH_EPS
@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 4)])
def test_the_gradient_equals_numeric_differentiation(eps, shape):
    norm = random_norm(shape[-1], eps).double()
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)

    # The check changes its inputs in place, the parameters too, so that the module need not be told of them.
    assert torch.autograd.gradcheck(lambda x, *_: norm(x), (x, norm.gain, norm.bias), atol=1e-8, rtol=1e-6)


def test_the_gradient_equals_that_of_the_formula_in_torchs_own_operations():
    norm = random_norm(64, 0.3)
    x = torch.randn(9, 5, 64, requires_grad=True)
    weights = torch.randn(9, 5, 64)
    inputs = (x, norm.gain, norm.bias)
    found = torch.autograd.grad((norm(x) * weights).sum(), inputs)
    deviation = x - x.mean(-1, keepdim=True)
    formula = deviation / (x.std(-1, correction=0, keepdim=True) + 0.3) * norm.gain + norm.bias
    expected = torch.autograd.grad((formula * weights).sum(), inputs)
    for gradient, expected_gradient in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)


def constant_rows(eps, dtype):
    """Rows of equal features; the normalisation's results, its gradients and what these are by the formula.

    Where all deviations vanish, the gradient is (g' - mean(g')) / eps with g' = gain * g.
    """
    norm = random_norm(64, eps).to(torch.promote_types(dtype, torch.float32))
    x = torch.randn(50, 1).to(dtype).repeat(1, 64).requires_grad_()
    weights = torch.randn(50, 64, dtype=norm.gain.dtype)
    y = norm(x)
    (y * weights).sum().backward()
    scaled = (weights * norm.gain.detach()).double()
    return norm, y, x.grad, (scaled - scaled.mean(-1, keepdim=True)) / eps


@BOTH_EPS
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_of_equal_features_gives_the_bias_and_a_finite_gradient(eps, dtype):
    norm, y, gradient, _ = constant_rows(eps, dtype)
    # The kernel for bfloat16 leaves float32's rounding of the mean in the deviations, and 1 / eps enlarges it.
    tolerance = 0.03 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(y, norm.bias.to(dtype).expand(50, 64), rtol=0.0, atol=tolerance)
    assert all(tensor.isfinite().all() for tensor in (gradient, norm.gain.grad, norm.bias.grad))


@BOTH_EPS
def test_the_gradient_of_a_row_of_equal_features_equals_the_formula_in_float64(eps):
    _, _, gradient, expected = constant_rows(eps, torch.float64)
    torch.testing.assert_close(gradient, expected, rtol=1e-6, atol=1e-8 / eps)


@BOTH_EPS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_of_a_row_of_equal_features_equals_the_formula_in_lower_precision(eps, dtype):
    _, _, gradient, expected = constant_rows(eps, dtype)
    assert (gradient.double() - expected).norm() < 0.02 * expected.norm()


def test_the_type_stays_under_the_autocast_of_cuda(monkeypatch):
    """Without a GPU: fake tensors have types and devices but no values. The kernel wants x and gain of one type."""
    kernel, types = torch.native_layer_norm, []

    def spy(x, shape, gain, bias, eps):
        types.append((x.dtype, gain.dtype))
        return kernel(x, shape, gain, bias, eps)

    monkeypatch.setattr(torch, "native_layer_norm", spy)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    with FakeTensorMode(), torch.no_grad():
        norm = LayerNorm(8)
        norm.gain, norm.bias = (nn.Parameter(torch.empty(8, device="cuda"), requires_grad=False) for _ in range(2))
        with torch.autocast("cuda", torch.bfloat16):
            assert norm(torch.empty(3, 8, device="cuda", dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert types == [(torch.float32, torch.float32)]


@pytest.mark.parametrize("value", [0.1, 1e-3, 12345.678])
def test_a_row_whose_mean_is_rounded_is_still_about_the_bias_with_a_finite_gradient(value):
    norm = random_norm(7)
    x = torch.full((1, 7), value, requires_grad=True)
    y = norm(x)
    y.sum().backward()
    assert (y - norm.bias).abs().max() <= 1.01 * norm.gain.abs().max() * 7**0.5
    assert x.grad.isfinite().all()


@BOTH_EPS
def test_bfloat16_stays_bfloat16_and_is_close_to_float64(eps):
    norm = random_norm(32, eps)
    x = torch.randn(6, 4, 32, dtype=torch.bfloat16, requires_grad=True)
    y = norm(x)
    assert y.dtype == torch.bfloat16
    exact_x = x.detach().double().requires_grad_()
    exact = random_norm(32, eps).double()
    exact.load_state_dict(norm.state_dict())
    expected = exact(exact_x)
    torch.testing.assert_close(y.double(), expected, rtol=0.02, atol=0.02)
    weights = torch.randn(6, 4, 32, dtype=torch.bfloat16)
    (y * weights).sum().backward()
    (expected * weights).sum().backward()
    assert x.grad.dtype == torch.bfloat16
    assert norm.gain.grad.dtype == norm.bias.grad.dtype == torch.float32
    torch.testing.assert_close(x.grad.double(), exact_x.grad, rtol=0.03, atol=0.03)
    for name in ("gain", "bias"):
        found, expected_gradient = (getattr(module, name).grad.double() for module in (norm, exact))
        torch.testing.assert_close(found, expected_gradient, rtol=0.03, atol=0.1)
