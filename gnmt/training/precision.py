"""The precision of training where the configuration leaves it open: measured on CPUs, a rule on GPUs."""

import time
from typing import NamedTuple

import torch
from torch import nn

_ACCELERATORS_WITH_GPU = ("auto", "gpu", "cuda")
# bfloat16 rounds to 8 bits: it must be clearly faster to be chosen.
_CLEARLY = 1.15
# What is timed is kept this small, or as small as the fewest rows and steps allow. Wider layers gain alike.
_MAX_WIDTH = 1024
_MAX_OPERATIONS, _MAX_SECONDS, _ROUNDS = 2e9, 0.5, 3
_STEPS, _FEWEST_STEPS = 12, 2
_MOST_ROWS, _FEWEST_ROWS = 96, 32


class Timing(NamedTuple):
    """Seconds of the same piece of training in both precisions."""

    fp32: float
    bf16: float

    @property
    def precision(self) -> str:
        """The faster one, in Lightning's words; `32-true` unless bfloat16 is clearly faster."""
        return "bf16-mixed" if self.fp32 > _CLEARLY * self.bf16 else "32-true"


def choose_precision(accelerator: str, is_alone: bool, hidden_size: int, tokens_per_batch: int) -> tuple[str, str]:
    """Choose how a run is trained.

    Args:
        accelerator: Lightning's name of it.
        is_alone: whether one process trains; several must agree without asking each other, and do not measure.
        hidden_size: width of the network.
        tokens_per_batch: padded tokens of a batch.

    Returns:
        the precision in Lightning's words, and why.
    """
    if accelerator in _ACCELERATORS_WITH_GPU and torch.cuda.is_available():
        supported = torch.cuda.is_bf16_supported(including_emulation=False)
        return ("bf16-mixed", "the GPU multiplies bfloat16") if supported else ("32-true", "the GPU has no bfloat16")
    if accelerator not in ("auto", "cpu"):
        return "32-true", f"accelerator {accelerator} is not known to gain from bfloat16"
    if not is_alone:
        return "32-true", "several CPU processes do not measure"
    timing = measure(hidden_size, tokens_per_batch)
    return timing.precision, f"measured: bf16-mixed takes {timing.bf16 / timing.fp32:.2f} times as long as 32-true"


def measure(hidden_size: int, tokens_per_batch: int) -> Timing:
    """Time an LSTM layer and a matrix product, forward and backward, on the CPU; the random numbers are left alone.

    Precisions take turns, the best of a few calls counts, and one thread does all: several would wait for each other
    wherever another program has one of the processor's cores.
    """
    steps, rows, width = _shape(hidden_size, tokens_per_batch)
    with torch.random.fork_rng(devices=[]):
        layer, product = nn.LSTM(width, width), nn.Linear(width, 2 * width)
        x = torch.rand(steps, rows, width, requires_grad=True)

    def seconds(is_bf16: bool) -> float:
        start = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_bf16):
            y = product(layer(x)[0])
        y.backward(torch.ones_like(y))
        return time.perf_counter() - start

    threads, begin = torch.get_num_threads(), time.perf_counter()
    torch.set_num_threads(1)
    for is_bf16 in (False, True):
        seconds(is_bf16)  # compiles the kernels
    rounds = [(seconds(False), seconds(True))]
    while len(rounds) < _ROUNDS and time.perf_counter() - begin < _MAX_SECONDS:
        rounds.append((seconds(False), seconds(True)))
    torch.set_num_threads(threads)
    return Timing(*map(min, zip(*rounds, strict=True)))


def _shape(hidden_size: int, tokens_per_batch: int) -> tuple[int, int, int]:
    """Time steps, rows and width to measure with: a batch of the run, or as much of it as the limits of time allow."""
    width = min(hidden_size, _MAX_WIDTH)
    tokens = _MAX_OPERATIONS / (60 * width**2)  # 16 H^2 of the layer and 4 H^2 of the product, thrice
    most = min(_MOST_ROWS, max(_FEWEST_ROWS, int(tokens / _FEWEST_STEPS)))
    rows = max(1, min(tokens_per_batch // _STEPS, most))
    rows -= rows % 16 if rows > 16 else 0  # as the batches of training
    return min(_STEPS, max(_FEWEST_STEPS, int(tokens / rows))), rows, width
