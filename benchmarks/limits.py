"""What this machine can do at best: the rate of its matrix products, measured in the run that is judged by it."""

import time
from collections.abc import Callable

import torch

from gnmt.nn.gnmt import GNMT


def seconds(work: Callable[[], object], repeat: int = 7) -> float:
    """Median time of a call, after two to warm up."""
    times = []
    for i in range(repeat + 2):
        start = time.perf_counter()
        work()
        if i >= 2:
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def matmul_rate(rows: int, inner: int, columns: int, dtype: torch.dtype) -> float:
    """Floating-point operations a second of one (rows, inner) x (inner, columns) product."""
    a, b = torch.randn(rows, inner).to(dtype), torch.randn(inner, columns).to(dtype)
    return 2 * rows * inner * columns / seconds(lambda: a @ b)


def multiplied_weights(network: GNMT) -> tuple[int, int]:
    """Weights that a source token is multiplied with (encoder), and a target token (decoder and softmax)."""
    encoder, decoder = (
        sum(p.numel() for p in part.parameters() if p.dim() > 1) for part in (network.encoder, network.decoder)
    )
    return encoder, decoder + network.output.weight.numel()
