"""Layer normalisation as the project's founding texts write it. Shapes: see `gnmt.nn`."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# Under the root of torch's kernel, so that a row of equal features gives 0 and not NaN; far below any variance.
_TINY = 1e-30


def normalise(x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The formula of `LayerNorm` over the last dimension of x; besides the means and 1 / std."""
    scaled, mean, reciprocal_std = torch.native_layer_norm(x, x.shape[-1:], gain, None, _TINY)
    shrink = (1.0 + eps * reciprocal_std).reciprocal_()
    return torch.addcmul(bias.to(x.dtype), scaled, shrink.to(x.dtype)), mean, reciprocal_std


class _Normalise(torch.autograd.Function):
    """gain * (x - mean) / (std + eps) + bias through torch's kernels, which know only 1 / sqrt(variance + eps).

    With d = std + eps, the forward pass scales the kernel's result by std / d. The gradient for x is
    (1/d) [g' - mean(g') - (x - mean) mean(g' (x - mean)) / (std d)] with g' = gain * g; the kernel computes
    r [g' - mean(g') - r^2 (x - mean) mean(g' (x - mean))] from any r. r = 1 / sqrt(std d) and a gradient scaled by
    sqrt(std / d) make the two equal, for the gain too. The kernel gets x - mean and the mean 0, because r is huge for
    rows of nearly equal features and would multiply the rounding of a difference that the kernel takes itself.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, bias: Tensor, eps: float) -> Tensor:
        y, mean, reciprocal_std = normalise(x, gain, bias, eps)
        ctx.save_for_backward(x, gain, mean, reciprocal_std.reciprocal())
        ctx.eps = eps
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        x, gain, mean, std = ctx.saved_tensors
        widened = std + ctx.eps
        x_grad, gain_grad, _ = torch.ops.aten.native_layer_norm_backward(
            grad * (std / widened).sqrt().to(grad.dtype),
            (x - mean).to(x.dtype),
            x.shape[-1:],
            torch.zeros_like(mean),
            (std * widened).rsqrt(),
            gain,
            None,
            [True, True, False],
        )
        return x_grad, gain_grad, grad.reshape(-1, x.shape[-1]).sum(0, dtype=gain.dtype), None


class LayerNorm(nn.Module):
    """(h - mean) / (std + eps) * gain + bias over the features of each position (Ba et al. 2016, arXiv 1607.06450).

    It knows nothing of the batch or of other time steps, so training and decoding compute the same.

    Args:
        size: number of features.
        eps: added to the standard deviation, not to the variance.
    """

    def __init__(self, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., size) over its last dimension; the result has the type of x, whatever autocast prefers."""
        if not torch.is_grad_enabled() and x.dtype == self.gain.dtype:
            return normalise(x, self.gain, self.bias, self.eps)[0]
        with torch.autocast(x.device.type, enabled=False):
            # CPU kernels take x in bfloat16 beside float32 parameters, others want one type.
            same = x if x.device.type == "cpu" else x.to(self.gain.dtype)
            return _Normalise.apply(same, self.gain, self.bias, self.eps).to(x.dtype)
