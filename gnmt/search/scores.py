"""The score functions of GNMT's beam search (paper section 7, equation 14)."""

import numpy as np
from numpy.typing import ArrayLike


def length_penalty(lengths: ArrayLike, alpha: float) -> np.ndarray:
    """lp(Y) = ((5 + |Y|) / 6)^alpha for lengths of any shape, in tokens with eos."""
    return ((5.0 + np.asarray(lengths)) / 6.0) ** alpha


def coverage_penalty(coverage: np.ndarray, mask: np.ndarray, beta: float) -> np.ndarray:
    """cp(X; Y) = beta * sum_i log(min(coverage_i, 1)) over valid source positions; never above 0.

    Args:
        coverage: (..., S) sum over target steps of the attention on each source position.
        mask: (..., S) bool, True where valid.
        beta: weight.
    """
    # The floor keeps a position that was never attended from making every score minus infinity.
    logs = np.log(np.clip(coverage, np.finfo(np.float32).tiny, 1.0))
    return beta * np.where(mask, logs, 0.0).sum(axis=-1)
