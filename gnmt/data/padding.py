"""Lists of ids -> padded, time-major batches. Shapes: B sentences, S source and T target positions."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gnmt.tokenizer import Tokenizer


class Batch(NamedTuple):
    """Sentence pairs, padded at the end.

    Attributes:
        source: (S, B) int64, each sentence closed by eos.
        source_lengths: (B,) int64, eos included.
        target_input: (T, B) int64, begins with bos.
        target_output: (T, B) int64, ends with eos.
        target_mask: (T, B) bool, True at positions to be predicted.
        positions: (B,) int64, the rows of their data set.
    """

    source: Tensor
    source_lengths: Tensor
    target_input: Tensor
    target_output: Tensor
    target_mask: Tensor


def pad_sources(sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Close each source with eos and pad: (S, B) tokens and (B,) lengths, both int64."""
    return _pad([[*ids, Tokenizer.eos_id] for ids in sources])


def collate(sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
    """Pad id lists (without special tokens) into a batch."""
    source, source_lengths = pad_sources(sources)
    target_input, target_lengths = _pad([[Tokenizer.bos_id, *ids] for ids in targets])
    target_output, _ = _pad([[*ids, Tokenizer.eos_id] for ids in targets])
    target_mask = torch.arange(len(target_input))[:, None] < target_lengths
    return Batch(source, source_lengths, target_input, target_output, target_mask)


def _pad(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    row_lengths = [len(row) for row in rows]
    padded = np.full((max(row_lengths), len(rows)), Tokenizer.pad_id, dtype=np.int64)
    for column, row in enumerate(rows):
        padded[: len(row), column] = row
    return torch.from_numpy(padded), torch.tensor(row_lengths)
