"""Examples -> batches of about equal size, in an order that depends on seed, epoch and rank alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gnmt.data.bitext import Dataset
from gnmt.data.examples import lengths
from gnmt.data.padding import Batch, collate
from gnmt.errors import DataError

# Sentences of a batch are a multiple of this where there are enough: the fused LSTM kernels of CPUs take more
# than twice as long for 97 rows as for 96 (benchmarks/lstm_rows.py), and GPUs like full tiles too.
ROW_MULTIPLE = 16


def plan_batches(
    source_lengths: np.ndarray, target_lengths: np.ndarray, tokens_per_batch: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Group examples of similar length into batches and shuffle the batches; a pure function of its arguments.

    Args:
        source_lengths: (n,) tokens.
        target_lengths: (n,) tokens.
        tokens_per_batch: limit for sentences * (longest source + longest target) / 2, special tokens included; a
            longer pair stands alone.
        seed: of the run.
        epoch: from 0; each has another order and other neighbours in a batch.

    Returns:
        arrays of example indices, each example in exactly one of them. Their number and sizes depend on the lengths
        and the limit alone, so that all epochs have equally many updates.
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(target_lengths))
    # Sorted by target, then source length; equal lengths stay in random order. Sources run up and down by turns.
    source = source_lengths[order] * np.where(target_lengths[order] % 2, -1, 1)
    order = order[np.lexsort((source, target_lengths[order]))]
    batches, start, longest_source, longest_target = [], 0, 0, 0
    for end, i in enumerate(order):
        longest_source = max(longest_source, source_lengths[i] + 1)
        longest_target = max(longest_target, target_lengths[i] + 1)
        size = end - start
        while size and (size + 1) * (longest_source + longest_target) > 2 * tokens_per_batch:
            rows = size - size % ROW_MULTIPLE if size > ROW_MULTIPLE else size
            batches.append(order[start : start + rows])
            start += rows
            size -= rows
            longest_source = source_lengths[order[start : end + 1]].max() + 1
            longest_target = target_lengths[order[start : end + 1]].max() + 1
    if len(order):
        batches.append(order[start:])
    return [batches[i] for i in rng.permutation(len(batches))]


class TrainingBatches:
    """Endless epochs of training batches; iterating once gives one epoch, and the position is part of a checkpoint.

    Args:
        examples: as `encode_bitext` returns them.
        tokens_per_batch: see `plan_batches`.
        seed: of the run.
        rank: of this process.
        world_size: number of processes; all get equally many batches, up to world_size - 1 batches an epoch are left.
    """

    def __init__(self, examples: Dataset, tokens_per_batch: int, seed: int, rank: int = 0, world_size: int = 1) -> None:
        self._examples = examples
        self._lengths = lengths(examples)
        self._tokens_per_batch, self._seed = tokens_per_batch, seed
        self._rank, self._world_size = rank, world_size
        # Each iteration is a new epoch, but for the first one after this constructor or after `load_state_dict`.
        self._epoch, self._batches_done, self._is_resuming = 0, 0, True
        self._plan = self._plan_epoch()

    def _plan_epoch(self) -> list[np.ndarray]:
        plan = plan_batches(*self._lengths, self._tokens_per_batch, self._seed, self._epoch)
        usable = len(plan) - len(plan) % self._world_size
        if not usable:
            raise DataError(
                f"{len(plan)} training batches for {self._world_size} processes, expected at least one each; "
                "lower data.batch.tokens_per_batch or trainer.devices"
            )
        return plan[self._rank : usable : self._world_size]

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[Batch]:
        if not self._is_resuming or self._batches_done == len(self._plan):
            self._epoch, self._batches_done = self._epoch + 1, 0
            self._plan = self._plan_epoch()
        self._is_resuming = False
        for index in self._plan[self._batches_done :]:
            rows = self._examples[index]
            yield collate(rows["source"], rows["target"])

    def batch_done(self) -> None:
        """Count one more batch as trained on; whoever trains calls it."""
        self._batches_done += 1

    def state_dict(self) -> dict[str, Any]:
        """The position: batches that are done."""
        return {"epoch": self._epoch, "batches_done": self._batches_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on after the last batch that was done when the state was taken."""
        self._epoch, self._batches_done, self._is_resuming = state["epoch"], state["batches_done"], True
        self._plan = self._plan_epoch()


class EvaluationBatches:
    """All examples once, in batches of similar length; none is left out."""

    def __init__(self, examples: Dataset, tokens_per_batch: int) -> None:
        self._examples = examples
        self._plan = plan_batches(*lengths(examples), tokens_per_batch, seed=0, epoch=0)

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[Batch]:
        for index in self._plan:
            rows = self._examples[index]
            yield collate(rows["source"], rows["target"])
