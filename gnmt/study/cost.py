"""Time and memory of training updates, each network in a process of its own."""

import re
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gnmt.config import GNMTConfig, OptimizerConfig
from gnmt.nn.gnmt import GNMT
from gnmt.nn.loss import cross_entropy
from gnmt.optim import build_optimizer
from gnmt.study.workers import run_jobs

_REPEATS, _WARM_UP = 9, 3


def measure(network: GNMTConfig, steps: int = 16, rows: int = 32, bfloat16: bool = False) -> dict[str, Any]:
    """Time and memory of training updates in a new process.

    Args:
        network: what is trained.
        steps: tokens of each source and of each target.
        rows: sentences of a batch.
        bfloat16: whether products are in bfloat16.

    Returns:
        `milliseconds` of an update (median), `mebibytes` of resident memory at the peak beyond what the program had
        before it built the network, and the number of `parameters`.
    """
    ((_, found),) = run_jobs(_measure_here, [(network, steps, rows, bfloat16)])
    return dict(found)


def _measure_here(config: GNMTConfig, steps: int, rows: int, bfloat16: bool) -> dict[str, Any]:
    before = _peak_mebibytes()
    network, update = training_update(config, steps, rows, bfloat16)
    times = []
    for _ in range(_WARM_UP + _REPEATS):
        start = time.perf_counter()
        update()
        times.append(time.perf_counter() - start)
    return {
        "milliseconds": statistics.median(times[_WARM_UP:]) * 1e3,
        "mebibytes": _peak_mebibytes() - before,
        "parameters": sum(parameter.numel() for parameter in network.parameters()),
    }


def training_update(
    config: GNMTConfig, steps: int, rows: int, bfloat16: bool = False
) -> tuple[GNMT, Callable[[], None]]:
    """A fresh network, and a function that makes one update of it on random sentences; arguments as for `measure`."""
    network = GNMT(config)
    optimizer, _ = build_optimizer(network, OptimizerConfig(), total_steps=1000)
    source, target = torch.randint(4, config.vocab_size, (2, steps, rows))
    lengths, mask = torch.full((rows,), steps), torch.ones(steps, rows, dtype=torch.bool)

    def update() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            sums = cross_entropy(network(source, lengths, target, mask), target.flatten(), 0.1)
        (sums.smoothed / sums.tokens).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return network, update


def _peak_mebibytes() -> float:
    """Peak resident memory of this program."""
    status = Path("/proc/self/status")
    if not status.exists():
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    # On Linux `getrusage` counts the memory of the process that started this one too.
    (kibibytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text(encoding="ascii"))
    return int(kibibytes) / 1024
