"""What the training benchmarks share: one update on random sentences, its time and its share of the machine's rate."""

from typing import NamedTuple

import torch
from limits import matmul_rate, multiplied_weights, seconds

from gnmt.config import GNMTConfig
from gnmt.nn.gnmt import GNMT
from gnmt.study.cost import training_update

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Speed(NamedTuple):
    """Speed of an update.

    Attributes:
        tokens_per_second: target tokens.
        milliseconds: median time.
        share: of `limit`, counting the matrix products of the weights alone.
        limit: floating-point operations a second of one matrix product of a like shape, measured just before.
    """

    tokens_per_second: float
    milliseconds: float
    share: float
    limit: float


def update_operations(network: GNMT, source_tokens: int, target_tokens: int) -> float:
    """Floating-point operations of the matrix products of one update: 2 forward and 4 backward for each weight used."""
    encoder, decoder = multiplied_weights(network)
    return 6.0 * (encoder * source_tokens + decoder * target_tokens)


def measure(config: GNMTConfig, sentences: int, length: int, precision: str) -> Speed:
    """Time updates on `sentences` pairs of `length` tokens a side; `precision` is a key of `PRECISIONS`."""
    tokens, dtype = sentences * length, PRECISIONS[precision]
    limit = matmul_rate(tokens, config.hidden_size, 4 * config.hidden_size, dtype)
    network, update = training_update(config, length, sentences, bfloat16=dtype == torch.bfloat16)
    duration = seconds(update)
    share = update_operations(network, tokens, tokens) / duration / limit
    return Speed(tokens / duration, duration * 1e3, share, limit)
