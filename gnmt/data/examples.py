"""Sentence pairs -> ids: tokenised once, in parallel, and kept in the cache of `datasets`."""

import dataclasses
import logging
import os
from typing import Any

import datasets
import numpy as np

from gnmt.config import BatchConfig
from gnmt.data.bitext import Dataset
from gnmt.errors import DataError
from gnmt.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

_FEATURES = datasets.Features(
    {
        "source": datasets.List(datasets.Value("int32")),
        "target": datasets.List(datasets.Value("int32")),
        "source_length": datasets.Value("int32"),
        "target_length": datasets.Value("int32"),
    }
)
# Below this many pairs a second process costs more time than it saves.
_PAIRS_PER_PROCESS = 100_000


@dataclasses.dataclass(frozen=True)
class EncodePairs:
    """Maps a batch of string pairs to ids; it pickles as the tokenizer's bytes, which makes the cache key stable."""

    tokenizer: Tokenizer

    def __call__(self, batch: dict[str, list[str]]) -> dict[str, list[Any]]:
        """Ids without special tokens, and the number of them."""
        source, target = ([self.tokenizer.encode(text) for text in batch[side]] for side in ("source", "target"))
        return {
            "source": source,
            "target": target,
            "source_length": [len(ids) for ids in source],
            "target_length": [len(ids) for ids in target],
        }


def encode_bitext(bitext: Dataset, tokenizer: Tokenizer) -> Dataset:
    """Return int32 columns `source`, `target`, `source_length`, `target_length`, one row a pair, in order."""
    processes = min(os.cpu_count() or 1, len(bitext) // _PAIRS_PER_PROCESS)
    return bitext.map(
        EncodePairs(tokenizer),
        batched=True,
        num_proc=processes if processes > 1 else None,
        features=_FEATURES,
        remove_columns=bitext.column_names,
    )


def filter_by_length(examples: Dataset, limits: BatchConfig, name: str) -> Dataset:
    """Drop training pairs that are empty, too long or too unequal; say how many for each reason.

    Raises:
        DataError: nothing is left.
    """
    source, target = lengths(examples)
    shorter, longer = np.minimum(source, target), np.maximum(source, target)
    reasons = {
        "empty on a side": shorter == 0,
        f"longer than {limits.max_length} tokens": longer > limits.max_length,
        f"length ratio over {limits.max_length_ratio:g}": longer > shorter * limits.max_length_ratio + 10,
    }
    dropped = np.zeros(len(examples), dtype=bool)
    counts = []
    for reason, is_bad in reasons.items():
        if count := int((is_bad & ~dropped).sum()):
            counts.append(f"{count} {reason}")
        dropped |= is_bad
    if counts:
        logger.warning("%s: %d of %d pairs dropped: %s", name, int(dropped.sum()), len(examples), ", ".join(counts))
    if dropped.all():
        raise DataError(f"{name}: no pair is left for training ({', '.join(counts)})")
    return examples.select(np.flatnonzero(~dropped)) if counts else examples


def lengths(examples: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Source and target lengths in tokens, each (number of examples,) int64."""
    columns = examples.select_columns(["source_length", "target_length"]).with_format("numpy")[:]
    return columns["source_length"].astype(np.int64), columns["target_length"].astype(np.int64)
