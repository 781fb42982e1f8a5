"""Batched beam search. Shapes: K beam, B sentences still searched, S source, V vocabulary; rows are K-major (K * B)."""

from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from gnmt.config import SearchConfig
from gnmt.search.scores import coverage_penalty, length_penalty

_EXTRA_LENGTH = 10


class Selectable(Protocol):
    """A tuple of tensors whose rows can be chosen."""

    def select(self, index: Tensor) -> Self:
        """Choose rows by position."""
        ...


class SearchMemory(Selectable, Protocol):
    """What search must know of encoded sources."""

    @property
    def mask(self) -> Tensor:
        """(B, S) bool, True where valid."""
        ...


class SearchState(Selectable, Protocol):
    """What search must know of a decoder's state."""

    @property
    def attention(self) -> Tensor:
        """(K * B, S) attention weights of the last step."""
        ...


class SearchModel(Protocol):
    """What search needs of a model; `gnmt.nn.gnmt.GNMT` is one."""

    def encode(self, source: Tensor, lengths: Tensor) -> Any:
        """(S, B) tokens and (B,) lengths to a `SearchMemory`."""
        ...

    def step(self, tokens: Tensor, state: Any, memory: Any) -> tuple[Tensor, Any]:
        """(K, B) last tokens and a state (None at the start) to log-probabilities (K, B, V) and a `SearchState`."""
        ...


class Hypothesis(NamedTuple):
    """A translation of one sentence as ids.

    Attributes:
        tokens: ids without bos and eos.
        log_prob: sum of token log-probabilities, eos included, in nats.
        score: log_prob / lp(Y) + cp(X; Y); hypotheses are sorted by it.
        is_complete: False if it reached the length limit before eos.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    is_complete: bool


@torch.inference_mode()
def beam_search(
    model: SearchModel, source: Tensor, lengths: Tensor, config: SearchConfig, *, bos_id: int, eos_id: int
) -> list[list[Hypothesis]]:
    """Search the best translations of a batch.

    A sentence is done when none of its unfinished hypotheses can still reach the score of its
    `config.num_hypotheses`-th best finished one. The best hypothesis therefore does not depend on how many are asked
    for. A beam of one ends with its first finished hypothesis: greedy search. The length limit is each sentence's own.

    Args:
        model: in evaluation mode.
        source: (S, B) int64 tokens, padded at the end.
        lengths: (B,) int64, each at least 1.
        config: beam size, penalties, limits.
        bos_id: the token before the first one.
        eos_id: the token that ends a hypothesis.

    Returns:
        for each sentence at most `num_hypotheses` hypotheses, best first, at least one.

    Raises:
        FloatingPointError: the model's log-probabilities are not numbers.
    """
    memory = model.encode(source, lengths)
    batch, beam, device = source.shape[1], config.beam_size, source.device
    finished: list[list[Hypothesis]] = [[] for _ in range(batch)]
    limits = (lengths * config.max_length_factor).ceil().long() + _EXTRA_LENGTH
    sentences = torch.arange(batch, device=device)
    tokens = torch.full((1, batch), bos_id, device=device)
    history = torch.empty(0, 1, batch, dtype=torch.long, device=device)
    log_probs = torch.zeros(1, batch, device=device)
    coverage = torch.zeros(1, 1, 1, device=device)
    state = None
    for length in range(1, int(limits.max()) + 1):
        step_log_probs, state = model.step(tokens, state, memory)
        coverage = coverage + state.attention.view(*tokens.shape, -1)
        candidates = log_probs.unsqueeze(-1) + step_log_probs
        log_probs, parents, tokens = _best(candidates, beam, eos_id)
        is_eos = tokens == eos_id
        at_limit = limits == length
        scores = _scores(log_probs, length, coverage.gather(0, _like(parents, coverage)), memory.mask, config)
        history = torch.cat([history.gather(1, parents.expand(length - 1, -1, -1)), tokens.unsqueeze(0)])
        # A hypothesis is finished by eos among the best K candidates, or by the sentence's length limit.
        ends = (is_eos & (torch.arange(len(tokens), device=device)[:, None] < beam)) | (at_limit & ~is_eos)
        for k, b in (ends & log_probs.isfinite()).nonzero().tolist():
            found = _hypothesis(history[:, k, b].tolist(), log_probs[k, b], scores[k, b], bool(is_eos[k, b]))
            finished[int(sentences[b])].append(found)
        # Unfinished candidates in order of probability; the K best of them go on.
        order = is_eos.long().argsort(dim=0, stable=True)[:beam]
        log_probs, parents, tokens = (x.gather(0, order) for x in (log_probs, parents, tokens))
        log_probs = log_probs.masked_fill(tokens == eos_id, -torch.inf)
        history = history.gather(1, order.expand(length, -1, -1))
        bound = log_probs[0] / length_penalty(limits, config.length_penalty)
        kept = _unfinished(finished, sentences, bound, at_limit, config)
        if not kept:
            break
        coverage = coverage.gather(0, _like(parents, coverage))
        keep = torch.tensor(kept, device=device)
        rows = parents[:, keep] * log_probs.shape[1] + keep
        state = state.select(rows.flatten())
        if len(kept) < log_probs.shape[1]:
            memory, sentences, limits = memory.select(keep), sentences[keep], limits[keep]
            log_probs, tokens, coverage = (x[:, keep] for x in (log_probs, tokens, coverage))
            history = history[:, :, keep]
    if not all(finished):
        raise FloatingPointError("the model's probabilities are not numbers: its weights are broken; train it again")
    return [sorted(found, key=lambda h: -h.score)[: config.num_hypotheses] for found in finished]


def _best(candidates: Tensor, beam: int, eos_id: int) -> tuple[Tensor, Tensor, Tensor]:
    """The 2K best of (K, B, V) candidates: log-probabilities, parents and tokens, each (2K, B), best first.

    At most K of them are eos, one for each parent, so that K unfinished ones are always among them.
    """
    num_parents, batch, vocab = candidates.shape
    flat = candidates.transpose(0, 1).reshape(batch, num_parents * vocab)
    values, index = flat.topk(min(2 * beam, flat.shape[1]), dim=1)
    return values.t(), (index // vocab).t(), (index % vocab).t()


def _scores(log_probs: Tensor, length: int, coverage: Tensor, mask: Tensor, config: SearchConfig) -> Tensor:
    scores = log_probs / length_penalty(torch.tensor(float(length)), config.length_penalty)
    if config.coverage_penalty:
        scores = scores + coverage_penalty(coverage, mask, config.coverage_penalty)
    return scores


def _hypothesis(tokens: list[int], log_prob: Tensor, score: Tensor, is_complete: bool) -> Hypothesis:
    return Hypothesis(tuple(tokens[:-1] if is_complete else tokens), float(log_prob), float(score), is_complete)


def _like(index: Tensor, x: Tensor) -> Tensor:
    """Expand an index (K, B) to gather rows of x (K', B, S)."""
    return index.unsqueeze(-1).expand(-1, -1, x.shape[-1])


def _unfinished(
    finished: list[list[Hypothesis]], sentences: Tensor, bound: Tensor, at_limit: Tensor, config: SearchConfig
) -> list[int]:
    """Positions in the batch of the sentences that could still improve their best hypotheses."""
    kept = []
    wanted = config.num_hypotheses
    rows = zip(sentences.tolist(), bound.tolist(), at_limit.tolist(), strict=True)
    for position, (sentence, best_possible, is_over) in enumerate(rows):
        scores = sorted((hypothesis.score for hypothesis in finished[sentence]), reverse=True)[:wanted]
        can_improve = len(scores) < wanted or (config.beam_size > 1 and best_possible > scores[-1])
        if not is_over and best_possible > -torch.inf and can_improve:
            kept.append(position)
    return kept
