"""The training loss as sums, so that whoever knows the global number of tokens can divide. Shapes: see `gnmt.nn`."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

# Rows of logits that are in memory as float32 at once.
_CHUNK_ROWS = 128


class LossSums(NamedTuple):
    """Sums over the tokens of a batch.

    Attributes:
        smoothed: scalar, label-smoothed cross-entropy in nats; what training minimises.
        nats: scalar, cross-entropy in nats without smoothing; exp(nats / tokens) is the perplexity.
        tokens: number of tokens.
    """

    smoothed: Tensor
    nats: Tensor
    tokens: int


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Both sums and the gradient in one pass over the logits, a few rows at a time."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        smoothed = nats = logits.new_zeros((), dtype=torch.promote_types(torch.float32, logits.dtype))
        gradient = torch.empty_like(logits) if ctx.needs_input_grad[0] else None
        uniform = smoothing / logits.shape[1]
        for start in range(0, len(logits), _CHUNK_ROWS):
            rows = slice(start, start + _CHUNK_ROWS)
            z, gold = logits[rows].to(nats.dtype), target[rows, None]
            log_norm = z.logsumexp(dim=1, keepdim=True)
            gold_nats = log_norm - z.gather(1, gold)
            nats = nats + gold_nats.sum()
            smoothed = smoothed + (1 - smoothing) * gold_nats.sum()
            if smoothing:
                smoothed = smoothed + smoothing * (log_norm - z.mean(dim=1, keepdim=True)).sum()
            if gradient is not None:
                g = (z - log_norm).exp_().sub_(uniform)
                gradient[rows] = g.scatter_add_(1, gold, g.new_full(gold.shape, smoothing - 1))
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(nats)
        return smoothed, nats

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grad.to(gradient.dtype), None, None


def cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float) -> LossSums:
    """Label-smoothed cross-entropy (Szegedy et al. 2016, section 7): the target keeps 1 - e, all pieces share e evenly.

    Args:
        logits: (N, V), any float type; the sums are computed in float32 or better.
        target: (N,) int64, N at least 1.
        label_smoothing: e, in [0, 1).
    """
    smoothed, nats = _SmoothedCrossEntropy.apply(logits, target, label_smoothing)
    return LossSums(smoothed, nats, len(target))
