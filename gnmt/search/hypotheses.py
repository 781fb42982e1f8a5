"""What search is asked for, what it returns, and what it keeps of its sentences. Shapes: B, K, S as in `gnmt.nn`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple, Self

import numpy as np

from gnmt.config import SearchConfig
from gnmt.search.constraints import Constraints, Progress

# Tokens that a hypothesis may have beyond max_length_factor times its source's.
EXTRA_LENGTH = 10


class Hypothesis(NamedTuple):
    """A translation of one sentence as ids.

    Attributes:
        tokens: ids without bos and eos.
        log_prob: sum of token log-probabilities, eos included, in nats.
        score: log_prob / lp(Y) + cp(X; Y); hypotheses are sorted by it.
        is_complete: False if it reached the length limit before eos.
        attention: (tokens, S) float32 weights on the source's tokens and its eos at each token, eos included if it is
            complete; None unless asked for, and beyond the `num_hypotheses` best.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    is_complete: bool
    attention: np.ndarray | None = None


class Request(NamedTuple):
    """A sentence to be searched.

    Attributes:
        key: the caller's number for it; with `SearchConfig.seed` it decides what is sampled.
        constraints: demands on its translation.
    """

    key: int
    constraints: Constraints = Constraints()


class Finished(NamedTuple):
    """A hypothesis that ended.

    Attributes:
        lacks: required sequences that are missing from it.
        hypothesis: without its attention.
        step: steps before its last one.
        attention: (K, S) of its last step.
        row: of `attention` and of the hypotheses before that step.
    """

    lacks: int
    hypothesis: Hypothesis
    step: int
    attention: np.ndarray | None
    row: int


@dataclass
class Sentence:
    """A sentence in search: its demands, what has been found, and how to trace the attention back.

    Attributes:
        request: the caller's.
        source_length: valid source positions.
        limit: tokens of the longest hypothesis.
        random: draws for sampling.
        progress: of each hypothesis with the required sequences; empty if there are none.
        finished: hypotheses so far, in no order.
        steps: of each step the attention (K, S) and, for each hypothesis that went on, its parent (K,).
    """

    request: Request
    source_length: int
    limit: int
    random: np.random.Generator
    progress: list[Progress]
    finished: list[Finished] = field(default_factory=list)
    steps: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    @classmethod
    def start(cls, request: Request, source_length: int, config: SearchConfig) -> Self:
        """A sentence of `source_length` tokens before its first step."""
        limit = math.ceil(source_length * config.max_length_factor) + EXTRA_LENGTH
        constraints = request.constraints
        begun = Progress.behind(constraints.prefix, constraints.required)
        progress = [begun] * config.beam_size if constraints.required else []
        least = len(constraints.prefix) + sum(map(len, constraints.required)) + EXTRA_LENGTH
        random = np.random.Generator(np.random.Philox(key=np.array([config.seed, request.key], dtype=np.uint64)))
        return cls(request, source_length, max(limit, least), random, progress)

    def next_tokens(self, hypothesis: int) -> set[int]:
        """The tokens that bring a required sequence of a hypothesis forward."""
        return self.progress[hypothesis].next_tokens() if self.progress else set()

    def lacks(self, hypothesis: int, token: int) -> int:
        """The number of required sequences that are missing from a hypothesis that ends with this token."""
        return len(self.progress[hypothesis].after(token).open) if self.progress else 0

    def best(self, number: int) -> list[Hypothesis]:
        """All finished hypotheses, best first, none twice; the first `number` with their attention.

        One that was cut off at the limit comes behind all that ended, one that lacks more of what is required behind
        all that lack less.
        """
        ranked = sorted(self.finished, key=lambda f: (f.lacks, not f.hypothesis.is_complete, -f.hypothesis.score))
        unique = list({each.hypothesis.tokens: each for each in reversed(ranked)}.values())[::-1]
        traced = [each.hypothesis._replace(attention=self._trace(each)) for each in unique[:number]]
        return traced + [each.hypothesis for each in unique[number:]]

    def worst_wanted(self, number: int) -> float:
        """The score of the `number`-th best finished hypothesis; minus infinity if there are fewer."""
        scores = sorted((each.hypothesis.score for each in self.finished if not each.lacks), reverse=True)
        return scores[number - 1] if len(scores) >= number else -math.inf

    def _trace(self, finished: Finished) -> np.ndarray | None:
        """The attention of all tokens (T, S)."""
        if finished.attention is None:
            return None
        row, rows = finished.row, [finished.attention[finished.row]]
        for attention, parents in reversed(self.steps[: finished.step]):
            row = parents[row]
            rows.append(attention[row])
        return np.stack([weights[: self.source_length] for weights in reversed(rows)])


@dataclass
class Beams:
    """The unfinished hypotheses of all sentences of a batch; a dead one has log-probability minus infinity.

    Attributes:
        log_probs: (B, K) float64, the most probable first; each step is added in the model's own type.
        tokens: (B, K) int64, the last token.
        history: (B, K, capacity) int32, all tokens.
        coverage: (B, K, S) float32, summed attention; S = 0 if no coverage penalty is asked for.
        lengths: (B,) int64, tokens so far.
        limits: (B,) int64, tokens of the longest hypothesis.
        worst: (B,) float64, the score that a finished hypothesis must beat to be among the wanted ones.
        best: (B,) float64, the best score of a finished one.
        leading: (B,) float64, the best score that an unfinished one would have if it ended here.
        ceilings: (B,) float64, the score that no other one may exceed, once the best one is settled.
    """

    log_probs: np.ndarray
    tokens: np.ndarray
    history: np.ndarray
    coverage: np.ndarray
    lengths: np.ndarray
    limits: np.ndarray
    worst: np.ndarray
    best: np.ndarray
    leading: np.ndarray
    ceilings: np.ndarray

    @classmethod
    def start(cls, sentences: Sequence[Sentence], config: SearchConfig, bos_id: int) -> Self:
        """Before the first step: one live hypothesis of each sentence, or K alike if they are to be sampled."""
        shape = len(sentences), config.beam_size
        log_probs = np.zeros(shape)
        if not config.temperature:
            log_probs[:, 1:] = -np.inf
        return cls(
            log_probs,
            np.full(shape, bos_id),
            np.empty((*shape, 0), dtype=np.int32),
            np.zeros((*shape, 0), dtype=np.float32),
            np.zeros(len(sentences), dtype=np.int64),
            np.array([sentence.limit for sentence in sentences], dtype=np.int64),
            np.full(len(sentences), -np.inf),
            np.full(len(sentences), -np.inf),
            np.full(len(sentences), -np.inf),
            np.full(len(sentences), np.inf),
        )

    def select(self, index: np.ndarray) -> Self:
        """Some sentences, by position."""
        return type(self)(*(array[index] for array in self._arrays()))

    def append(self, other: Self) -> Self:
        """These sentences and others behind them."""
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return type(self)(*(np.concatenate(_same_width(*pair)) for pair in pairs))

    def _arrays(self) -> list[np.ndarray]:
        return [getattr(self, each.name) for each in fields(self)]


def widened(array: np.ndarray, size: int) -> np.ndarray:
    """The array (B, K, n) with zeros behind, n = `size` at least."""
    return np.pad(array, ((0, 0), (0, 0), (0, max(0, size - array.shape[2]))))


def _same_width(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if first.ndim < 3:
        return first, second
    size = max(first.shape[2], second.shape[2])
    return widened(first, size), widened(second, size)
