"""Products at each precision against exact arithmetic."""

import pytest
import torch

from gnmt.errors import ConfigError
from gnmt.inference.products import Int8Product, Int8StateProduct, build_product, check_int8, fastest_precision

CPU = torch.device("cpu")


# 600 x 512 weights are packed in fp32, 30 x 20 are not.
@pytest.mark.parametrize("size", [(30, 20), (600, 512)])
@pytest.mark.parametrize("rows", [1, 5, 160])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("bf16", 1e-2), ("int8", 1.5e-2)])
def test_a_product_is_near_the_exact_one(size, rows, has_bias, precision, tolerance):
    outputs, inputs = size
    weight, x = torch.randn(outputs, inputs), torch.randn(rows, inputs)
    bias = torch.randn(outputs) if has_bias else None
    found = build_product(weight, bias, precision)(x)
    expected = x.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    assert found.dtype == x.dtype
    error = (found - expected).norm() / expected.norm()
    assert error < tolerance


def test_float64_stays_exact():
    weight, bias, x = (torch.randn(*shape, dtype=torch.float64) for shape in ((40, 30), (40,), (5, 30)))
    torch.testing.assert_close(build_product(weight, bias, "fp32")(x), x @ weight.T + bias, rtol=1e-13, atol=1e-13)


def test_int8_rounds_weights_and_rows_to_the_nearest_step():
    weight, x = torch.randn(33, 70), torch.randn(6, 70)
    w_scale, x_scale = weight.abs().amax(1, keepdim=True) / 127, x.abs().amax(1, keepdim=True) / 127
    expected = (x / x_scale).round().double() @ (weight / w_scale).round().double().T * x_scale * w_scale.T
    torch.testing.assert_close(Int8Product(weight, None)(x).double(), expected, rtol=1e-5, atol=1e-5)


def test_an_int8_row_does_not_depend_on_its_neighbours():
    product, x = Int8Product(torch.randn(64, 48), torch.randn(64)), torch.randn(50, 48)
    x[7] *= 1000.0
    assert torch.equal(product(x)[:5], product(x[:5]))


def test_states_have_one_scale():
    weight, h = torch.randn(33, 70), torch.rand(6, 70) * 2 - 1
    w_scale = weight.abs().amax(1, keepdim=True) / 127
    expected = (h * 127).round().double() @ (weight / w_scale).round().double().T / 127 * w_scale.T
    torch.testing.assert_close(Int8StateProduct(weight)(h).double(), expected, rtol=1e-5, atol=1e-5)


def test_rows_of_zeros_and_outputs_of_zeros_give_the_bias():
    weight, bias = torch.randn(16, 8), torch.randn(16)
    weight[3] = 0.0
    bias[4] = -torch.inf
    product = Int8Product(weight, bias)
    assert torch.equal(product(torch.zeros(2, 8)), bias.expand(2, 16))
    assert product(torch.randn(2, 8))[0, 3] == bias[3]
    assert torch.isneginf(product(torch.randn(2, 8))[:, 4]).all()


def test_numbers_that_are_none_stay_visible():
    assert Int8Product(torch.randn(4, 8), None)(torch.full((1, 8), torch.nan)).isnan().all()


def test_int8_is_refused_where_it_saturates_or_is_missing(monkeypatch):
    check_int8(CPU)
    with pytest.raises(ConfigError, match="no exact int8 products"):
        check_int8(torch.device("meta"))
    monkeypatch.setattr(Int8Product, "__call__", lambda self, x: torch.zeros(2, 16))
    with pytest.raises(ConfigError, match="fp32"):
        check_int8(CPU)


def test_the_automatic_precision_is_one_of_two():
    assert fastest_precision(CPU) in ("fp32", "bf16")
