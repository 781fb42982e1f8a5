"""Batched search that sentences enter and leave at any time. Shapes: B sentences, K beam, C candidates, S source."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnmt.config import SearchConfig
from gnmt.search.candidates import Candidates, best_candidates, sampled_candidates
from gnmt.search.constraints import Constraints, banned_tokens
from gnmt.search.hypotheses import Beams, Hypothesis, Request, Sentence, widened
from gnmt.search.model import SearchModel
from gnmt.search.required import forced_steps, spread
from gnmt.search.scores import coverage_penalty, length_penalty


class Search:
    """A batch of sentences in search: `admit` puts some in, `advance` decodes one token of each hypothesis.

    A sentence is done when none of its unfinished hypotheses can still reach the score of its
    `config.num_hypotheses`-th best finished one. The best hypothesis therefore does not depend on how many are asked
    for. A beam of one ends with its first finished hypothesis: greedy search. The length limit is each sentence's own.
    Sampling (`config.temperature` above 0) draws K translations of each sentence independently.

    Args:
        model: what is searched.
        config: beam size, penalties, limits, sampling.
        bos_id: the token before the first one.
        eos_id: the token that ends a hypothesis.
        keep_attention: whether hypotheses carry their attention.
    """

    def __init__(
        self, model: SearchModel, config: SearchConfig, *, bos_id: int, eos_id: int, keep_attention: bool = False
    ) -> None:
        self._model, self._config = model, config
        self._bos_id, self._eos_id, self._keep_attention = bos_id, eos_id, keep_attention
        self._memory: Any = None
        self._state: Any = None
        self._sentences: list[Sentence] = []
        self._beams = Beams.start([], config, bos_id)
        self._done = np.empty(0, dtype=bool)

    @property
    def num_active(self) -> int:
        """Sentences in search."""
        return len(self._done) - self.num_done

    @property
    def num_done(self) -> int:
        """Sentences that are done but still in the batch, where they cost time until `drop_done`."""
        return int(self._done.sum())

    def admit(self, memory: Any, requests: Sequence[Request]) -> None:
        """Put encoded sentences into the batch, in the places of those that are done.

        Args:
            memory: of the sentences, as the model's `encode` returns it.
            requests: one for each of them.
        """
        self.drop_done()
        lengths = memory.mask.sum(dim=1).tolist()
        new = [Sentence.start(request, length, self._config) for request, length in zip(requests, lengths, strict=True)]
        state = self._model.start(memory, self._config.beam_size)
        self._memory = memory if self._memory is None else self._memory.append(memory)
        self._state = state if self._state is None else self._state.append(state)
        self._sentences += new
        self._beams = self._beams.append(Beams.start(new, self._config, self._bos_id))
        self._done = np.append(self._done, np.zeros(len(new), dtype=bool))

    def drop_done(self) -> None:
        """Take the sentences that are done out of the batch."""
        keep = np.flatnonzero(~self._done)
        if len(keep) == len(self._done):
            return
        if len(keep):
            beam = self._config.beam_size
            self._state = self._state.select(self._tensor((keep[:, None] * beam + np.arange(beam)).ravel()))
            self._memory = self._memory.select(self._tensor(keep))
        else:
            self._memory = self._state = None
        self._sentences = [self._sentences[b] for b in keep]
        self._beams = self._beams.select(keep) if len(keep) else Beams.start([], self._config, self._bos_id)
        self._done = self._done[keep]

    @torch.inference_mode()
    def advance(self) -> list[tuple[int, list[Hypothesis]]]:
        """Decode one token of each hypothesis.

        Returns:
            of each sentence that is done now its key and all hypotheses found, best first; at least one, but
            `num_hypotheses` only if the search found so many.

        Raises:
            FloatingPointError: the model's log-probabilities are not numbers.
        """
        beams = self._beams
        log_probs, state, attention = self._model.step(self._tensor(beams.tokens), self._state, self._memory)
        self._ban(log_probs)
        candidates = self._with_demands(self._candidates(log_probs), log_probs)
        beams.lengths += 1
        weights = attention.float().cpu().numpy() if self._keep_attention or self._config.coverage_penalty else None
        scores = self._scores(candidates, weights)
        self._prune(candidates, scores)
        is_alive = np.isfinite(candidates.log_probs)
        goes_on = is_alive & (candidates.tokens != self._eos_id)
        order = np.argsort(~goes_on, axis=1, kind="stable")[:, : self._config.beam_size]
        ends = is_alive & ~goes_on
        ends[:, self._config.beam_size :] = False
        for b in np.flatnonzero(beams.lengths >= beams.limits):
            ends[b, order[b]] |= goes_on[b, order[b]]
            goes_on[b] = False
        self._finish(candidates, scores, ends, weights)
        self._go_on(candidates, order, goes_on, weights)
        rows = np.arange(len(order))[:, None] * order.shape[1] + np.take_along_axis(candidates.parents, order, 1)
        moved = (rows.ravel() != np.arange(rows.size)).any()
        self._state = state.select(self._tensor(rows.ravel())) if moved else state
        return self._take_done()

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._memory.mask.device)

    def _candidates(self, log_probs: Tensor) -> Candidates:
        """Twice as many as the beam holds: at most K are eos, so that K that go on are always among them."""
        config = self._config
        if not config.temperature:
            return best_candidates(log_probs, self._beams.log_probs, 2 * config.beam_size)
        uniform = np.stack([sentence.random.random(config.beam_size) for sentence in self._sentences])
        return sampled_candidates(
            log_probs, self._beams.log_probs, uniform, config.temperature, config.top_k, config.top_p
        )

    def _ban(self, log_probs: Tensor) -> None:
        """Make what must not follow impossible: forbidden sequences, repeated n-grams, an end that comes too early."""
        size, rows = self._config.no_repeat_ngram_size, []
        for b, sentence in enumerate(self._sentences):
            forbidden = sentence.request.constraints.forbidden
            if self._done[b] or not (forbidden or size or sentence.progress):
                continue
            length = self._beams.lengths[b]
            for k in np.flatnonzero(np.isfinite(self._beams.log_probs[b])):
                banned = banned_tokens(self._beams.history[b, k, :length].tolist(), forbidden, size)
                if sentence.progress and sentence.progress[k].missing:
                    banned.add(self._eos_id)
                rows += [(b, int(k), token) for token in banned]
        if rows:
            log_probs[tuple(self._tensor(np.array(rows).T))] = -torch.inf

    def _with_demands(self, candidates: Candidates, log_probs: Tensor) -> Candidates:
        """Candidates under prefixes, whose next token is the only one, and under required sequences."""
        for b, sentence in enumerate(self._sentences):
            prefix, length = sentence.request.constraints.prefix, self._beams.lengths[b]
            beam = self._beams.log_probs[b]
            if self._done[b] or not (length < len(prefix) or sentence.progress):
                continue
            of_token = log_probs[b]
            if length < len(prefix):
                token = prefix[length]
                ways = [(p + float(of_token[k, token]), k, token) for k, p in enumerate(beam) if p > -np.inf]
            else:
                found = list(zip(*(array[b].tolist() for array in candidates), strict=True))
                forced = forced_steps(sentence.progress, beam, of_token)
                ends = [way for way in found if way[2] == self._eos_id]
                others = [way for way in found + forced if way[2] != self._eos_id and way[0] > -np.inf]
                ways = sorted(ends + spread(others, sentence.progress, len(beam)), reverse=True)
            for array, values, rest in zip(candidates, zip(*ways, strict=True), (-np.inf, 0, 0), strict=True):
                array[b] = rest
                array[b, : len(values)] = values
        return candidates

    def _scores(self, candidates: Candidates, weights: np.ndarray | None) -> np.ndarray:
        """Scores (B, C) that the candidates would have if they ended here; it adds the step to the beams' coverage."""
        config, beams = self._config, self._beams
        scores = candidates.log_probs / length_penalty(beams.lengths, config.length_penalty)[:, None]
        if config.coverage_penalty and weights is not None:
            beams.coverage = widened(beams.coverage, weights.shape[2]) + weights
            mask = self._memory.mask.cpu().numpy()[:, None]
            penalties = coverage_penalty(beams.coverage, mask, config.coverage_penalty)
            scores += np.take_along_axis(penalties, candidates.parents, 1)
        return scores

    def _prune(self, candidates: Candidates, scores: np.ndarray) -> None:
        """Drop what is too far below the best: tokens (before any score), and hypotheses once one has finished."""
        config, beams = self._config, self._beams
        if config.token_pruning < np.inf:
            before = np.take_along_axis(beams.log_probs, candidates.parents, 1)
            steps = candidates.log_probs - np.where(np.isfinite(before), before, 0.0)
            best = np.full_like(beams.log_probs, -np.inf)
            np.maximum.at(best, (np.arange(len(best))[:, None], candidates.parents), steps)
            is_far = steps < np.take_along_axis(best, candidates.parents, 1) - config.token_pruning
            candidates.log_probs[is_far] = -np.inf
        if config.hypothesis_pruning < np.inf:
            candidates.log_probs[scores < beams.best[:, None] - config.hypothesis_pruning] = -np.inf

    def _finish(self, candidates: Candidates, scores: np.ndarray, ends: np.ndarray, weights: np.ndarray | None) -> None:
        """Record the candidates that end here (B, C): by eos, or because the sentence is at its limit."""
        for b, c in np.argwhere(ends):
            sentence, parent, token = self._sentences[b], candidates.parents[b, c], int(candidates.tokens[b, c])
            tokens = self._beams.history[b, parent, : self._beams.lengths[b] - 1].tolist()
            is_complete = token == self._eos_id
            attention = sentence.trace(weights[b], parent) if self._keep_attention and weights is not None else None
            hypothesis = Hypothesis(
                tuple(tokens if is_complete else [*tokens, token]),
                float(candidates.log_probs[b, c]),
                float(scores[b, c]),
                is_complete,
                attention,
            )
            if sentence.lacks(parent, token) and not is_complete:
                sentence.lacking.append(hypothesis)
                continue
            sentence.finished.append(hypothesis)
            self._beams.worst[b] = sentence.worst_wanted(self._config.num_hypotheses)
            self._beams.best[b] = max(self._beams.best[b], hypothesis.score)

    def _go_on(
        self, candidates: Candidates, order: np.ndarray, goes_on: np.ndarray, weights: np.ndarray | None
    ) -> None:
        """Make the candidates at `order` (B, K) the new hypotheses; those that do not go on are dead."""
        beams, batch = self._beams, np.arange(len(order))
        log_probs, parents, tokens = (np.take_along_axis(array, order, 1) for array in candidates)
        for sentence, its_parents, its_tokens, b in zip(self._sentences, parents, tokens.tolist(), batch, strict=True):
            if sentence.progress:
                sentence.progress = [
                    sentence.progress[parent].after(token)
                    for parent, token in zip(its_parents, its_tokens, strict=True)
                ]
            if self._keep_attention and weights is not None:
                sentence.steps.append((weights[b], its_parents))
        beams.log_probs = np.where(np.take_along_axis(goes_on, order, 1), log_probs, -np.inf)
        beams.tokens = tokens
        beams.history = beams.history[batch[:, None], parents]
        if beams.history.shape[2] < beams.lengths.max():
            beams.history = widened(beams.history, 2 * int(beams.lengths.max()))
        beams.history[batch, :, beams.lengths - 1] = tokens
        if beams.coverage.shape[2]:
            beams.coverage = beams.coverage[batch[:, None], parents]

    def _take_done(self) -> list[tuple[int, list[Hypothesis]]]:
        """Mark the sentences that cannot improve their wanted hypotheses, and return what they found."""
        config, beams = self._config, self._beams
        possible = beams.log_probs.max(axis=1, initial=-np.inf)
        bound = possible / length_penalty(beams.limits, config.length_penalty)
        if config.temperature:
            can_improve = possible > -np.inf
        elif config.beam_size == 1:
            can_improve = (beams.best == -np.inf) & (possible > -np.inf)
        else:
            can_improve = bound > beams.worst
        new = np.flatnonzero(~self._done & ~can_improve)
        self._done[new] = True
        beams.log_probs[new] = -np.inf
        if not all(self._sentences[b].best() for b in new):
            raise FloatingPointError(
                "the model's probabilities are not numbers: its weights are broken; train it again"
            )
        return [(self._sentences[b].request.key, self._sentences[b].best()) for b in new]


@torch.inference_mode()
def beam_search(
    model: SearchModel,
    source: Tensor,
    lengths: Tensor,
    config: SearchConfig,
    *,
    bos_id: int,
    eos_id: int,
    constraints: Sequence[Constraints] | None = None,
    keep_attention: bool = False,
) -> list[list[Hypothesis]]:
    """Search the best translations of a batch, see `Search`.

    Args:
        model: such as `gnmt.inference.network.InferenceNetwork`.
        source: (S, B) int64 tokens, padded at the end.
        lengths: (B,) int64, each at least 1.
        config: beam size, penalties, limits.
        bos_id: the token before the first one.
        eos_id: the token that ends a hypothesis.
        constraints: of each sentence.
        keep_attention: whether hypotheses carry their attention.

    Returns:
        for each sentence at most `config.num_hypotheses` hypotheses, best first, at least one.

    Raises:
        FloatingPointError: the model's log-probabilities are not numbers.
    """
    search = Search(model, config, bos_id=bos_id, eos_id=eos_id, keep_attention=keep_attention)
    demands = constraints or [Constraints()] * len(lengths)
    requests = [Request(key, each) for key, each in enumerate(demands)]
    search.admit(model.encode(source, lengths), requests)
    found: dict[int, list[Hypothesis]] = {}
    while search.num_active:
        found.update(search.advance())
        search.drop_done()
    return [found[key][: config.num_hypotheses] for key in range(len(requests))]
