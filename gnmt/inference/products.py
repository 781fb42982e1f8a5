"""Products of activations with fixed weights: x W^T + b in float32, bfloat16 or int8. N rows, I inputs, O outputs.

A product is made once from a trained weight and called at each decoding step. Activations go in and come out in the
weights' type (float32 as a rule), whatever is computed inside.
"""

import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from gnmt.errors import ConfigError

Product = Callable[[Tensor], Tensor]

PRECISIONS = ("auto", "fp32", "bf16", "int8")

# Activations of -127 to 127 travel as 1 to 255, and the half makes cutting off round.
_INT8_MAX, _SHIFT = 127.0, 128.5
# Below this many weights packing does not pay: a oneDNN call alone takes about 20 microseconds.
_FEW_WEIGHTS = 1 << 18


class PlainProduct:
    """F.linear in the weights' own type or in another one: for GPUs, and for types without a packed form."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._weight = weight.to(dtype)
        self._bias = None if bias is None else bias.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, I) to (N, O)."""
        return F.linear(x.to(self._weight.dtype), self._weight, self._bias).to(x.dtype)


class PackedProduct:
    """oneDNN's product with a weight that is laid out for it once; torch's own does that at every call."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype).contiguous(), None)
        self._bias = None if bias is None else bias.to(dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, I) to (N, O)."""
        y = torch.ops.mkldnn._linear_pointwise(x.to(self._dtype), self._weight, self._bias, "none", [], "")
        return y.to(x.dtype)


class _Int8Weight:
    """A weight (O, I) in int8 with a scale for each output, ready for products with activations in 8 bits."""

    def __init__(self, weight: Tensor) -> None:
        self._scales = weight.abs().amax(dim=1).clamp(min=torch.finfo(weight.dtype).tiny) / _INT8_MAX
        quantized = (weight / self._scales[:, None]).round_().to(torch.int8)
        self._packed = torch.ops.onednn.qlinear_prepack(quantized, None)
        self._zeros = torch.zeros(len(weight), dtype=torch.int32)

    def multiply(self, shifted: Tensor, scale: float) -> Tensor:
        """Multiply x + 128.5, x (N, I) from -127 to 127, with the weight and `scale`: (N, O)."""
        # The half and the cut to uint8 round to the nearest; the product takes 128 off again.
        x, scales, zeros = shifted.to(torch.uint8), self._scales, self._zeros
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            x, scale, 128, self._packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        return y


class Int8Product:
    """Weights in int8, activations in 8 bits with a scale for each row, sums in int32.

    A row's scale depends on that row alone, so that its product does not depend on its neighbours in the batch.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = _Int8Weight(weight)
        self._bias = weight.new_zeros(len(weight)) if bias is None else bias.clone()
        self._shift, self._least = torch.tensor(_SHIFT), torch.tensor(1e-30)

    def __call__(self, x: Tensor) -> Tensor:
        """(N, I) to (N, O)."""
        row_scales = torch.add(self._least, x.abs().amax(dim=1, keepdim=True), alpha=1.0 / _INT8_MAX)
        y = self._weight.multiply(torch.addcdiv(self._shift, x, row_scales), 1.0)
        return torch.addcmul(self._bias, y, row_scales)


class Int8StateProduct:
    """The same for outputs of an LSTM, which lie between -1 and 1: one scale for all, and no bias."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = _Int8Weight(weight)
        self._shift = torch.tensor(_SHIFT)

    def __call__(self, h: Tensor) -> Tensor:
        """(N, I) to (N, O)."""
        return self._weight.multiply(torch.add(self._shift, h, alpha=_INT8_MAX), 1.0 / _INT8_MAX)


def check_int8(device: torch.device) -> None:
    """Multiply the largest 8-bit numbers: CPUs without instructions for it saturate on the way, or cannot at all.

    Raises:
        ConfigError: this machine has no exact int8 products.
    """
    weight = torch.full((16, 64), _INT8_MAX)
    try:
        found = Int8Product(weight, None)(torch.ones(2, 64)) if device.type == "cpu" else weight.new_zeros(2, 16)
    except RuntimeError:
        found = weight.new_zeros(2, 16)
    if not torch.allclose(found, torch.full((2, 16), 64 * _INT8_MAX)):
        raise ConfigError(f"no exact int8 products on {device.type} here; choose another precision, such as fp32")


def build_product(weight: Tensor, bias: Tensor | None, precision: str) -> Product:
    """The product with a weight (O, I) and a bias (O,) at a precision out of `fp32`, `bf16` and `int8`.

    The bias and float64 weights (tests against exact arithmetic) keep their precision under `fp32`.
    """
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    on_cpu = weight.device.type == "cpu"
    if precision == "int8" and on_cpu:
        return Int8Product(weight, bias)
    dtype = torch.bfloat16 if precision == "bf16" else weight.dtype
    is_packable = on_cpu and dtype != torch.float64 and torch.backends.mkldnn.is_available()
    is_packable = is_packable and (weight.numel() >= _FEW_WEIGHTS or dtype == torch.bfloat16)
    return PackedProduct(weight, bias, dtype) if is_packable else PlainProduct(weight, bias, dtype)


def fastest_precision(device: torch.device) -> str:
    """`bf16` where it multiplies clearly faster than `fp32`, measured here and now for some milliseconds."""
    weight, x = torch.rand(2048, 1024, device=device) - 0.5, torch.rand(160, 1024, device=device)
    seconds = {precision: _seconds(build_product(weight, None, precision), x) for precision in ("fp32", "bf16")}
    return "bf16" if seconds["bf16"] < 0.8 * seconds["fp32"] else "fp32"


def _seconds(product: Product, x: Tensor) -> float:
    """The best of three calls, after one to warm up."""
    times = []
    for _ in range(4):
        start = time.perf_counter()
        product(x)
        if x.device.type == "cuda":
            torch.cuda.synchronize(x.device)
        times.append(time.perf_counter() - start)
    return min(times[1:])
