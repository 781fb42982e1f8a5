"""Time and memory of one update of a stack, each in a process of its own."""

import concurrent.futures
import multiprocessing
import re
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from gnmt.config import OptimizerConfig
from gnmt.nn.gnmt import GNMT
from gnmt.nn.loss import cross_entropy
from gnmt.optim import build_optimizer
from gnmt.study.settings import Stack

_STEPS, _ROWS, _REPEATS, _WARM_UP = 16, 32, 9, 3


def measure(stack: Stack, vocab_size: int) -> dict[str, Any]:
    """Median milliseconds of an update of 32 sentences of 16 tokens, and the process' peak memory beyond its start."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(_measure_here, stack, vocab_size).result()


def _measure_here(stack: Stack, vocab_size: int) -> dict[str, Any]:
    before = _peak_mebibytes()
    network = GNMT(stack.network(vocab_size))
    optimizer, _ = build_optimizer(network, OptimizerConfig(), total_steps=1000)
    source, target = torch.randint(4, vocab_size, (2, _STEPS, _ROWS))
    lengths, mask = torch.full((_ROWS,), _STEPS), torch.ones(_STEPS, _ROWS, dtype=torch.bool)
    times = []
    for _ in range(_WARM_UP + _REPEATS):
        start = time.perf_counter()
        sums = cross_entropy(network(source, lengths, target, mask), target.flatten(), 0.0)
        (sums.smoothed / sums.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - start)
    return {
        "milliseconds": statistics.median(times[_WARM_UP:]) * 1e3,
        "mebibytes": _peak_mebibytes() - before,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
    }


def _peak_mebibytes() -> float:
    """Peak resident memory of this program alone; `getrusage` would count that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (kibibytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(kibibytes) / 1024
