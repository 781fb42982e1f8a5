"""The score functions of GNMT's beam search (paper section 7, equation 14)."""

import torch
from torch import Tensor


def length_penalty(lengths: Tensor, alpha: float) -> Tensor:
    """lp(Y) = ((5 + |Y|) / 6)^alpha for lengths of any shape, in tokens with eos."""
    return ((5.0 + lengths) / 6.0) ** alpha


def coverage_penalty(coverage: Tensor, mask: Tensor, beta: float) -> Tensor:
    """cp(X; Y) = beta * sum_i log(min(coverage_i, 1)) over valid source positions; never above 0.

    Args:
        coverage: (..., S) sum over target steps of the attention on each source position.
        mask: (..., S) bool, True where valid.
        beta: weight.
    """
    # The floor keeps a position that was never attended from making every score minus infinity.
    logs = coverage.clamp(min=torch.finfo(torch.float32).tiny, max=1.0).log()
    return beta * logs.masked_fill(~mask, 0.0).sum(dim=-1)
