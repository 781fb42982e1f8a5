"""A batch in search, which sentences enter and leave at any time. Shapes: B, K, S as in `gnmt.nn`; C candidates."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gnmt.config import SearchConfig
from gnmt.errors import ConfigError
from gnmt.search.bans import Bans
from gnmt.search.candidates import Candidates, best_candidates, sampled_candidates
from gnmt.search.hypotheses import Beams, Finished, Hypothesis, Request, Sentence, widened
from gnmt.search.model import SearchModel
from gnmt.search.required import ways_with_requirements
from gnmt.search.scores import coverage_penalty, length_penalty


class Search:
    """A batch of sentences in search: `admit` puts some in, `advance` decodes one token of each hypothesis.

    A sentence is done when none of its unfinished hypotheses can still reach the score of its
    `config.num_hypotheses`-th best finished one, or when all are `config.stop_margin` below it. Its best hypothesis is
    settled in the same way, and what is found later does not replace it: it does not depend on how many are asked for.
    A beam of one ends with its first finished hypothesis: greedy search. The length limit is each sentence's own.
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
        self._bans = Bans(config.no_repeat_ngram_size, eos_id)
        self._memory: Any = None
        self._state: Any = None
        self._sentences: list[Sentence] = []
        self._beams = Beams.start([], config, bos_id)
        self._done = np.empty(0, dtype=bool)
        self._mask = np.empty((0, 0), dtype=bool)

    @property
    def num_active(self) -> int:
        """Sentences in search."""
        return len(self._done) - self.num_done

    @property
    def num_done(self) -> int:
        """Sentences that are done but still in the batch, where they cost time until `drop_done`."""
        return int(self._done.sum())

    @property
    def width(self) -> int:
        """Source positions of the batch, padding included; 0 if it is empty."""
        return self._mask.shape[1] if len(self._mask) else 0

    def admit(self, memory: Any, requests: Sequence[Request]) -> None:
        """Put encoded sentences into the batch, in the places of those that are done.

        Args:
            memory: of the sentences, as the model's `encode` returns it.
            requests: one for each of them.

        Raises:
            ConfigError: samples cannot be made to have required sequences.
        """
        self.drop_done()
        config, new = self._config, []
        for request, length in zip(requests, memory.mask.sum(dim=1).tolist(), strict=True):
            if config.temperature and request.constraints.required:
                raise ConfigError("required words with a temperature above 0, expected one or the other")
            new.append(Sentence.start(request, length, config))
        state = self._model.start(memory, config.beam_size)
        self._memory = memory if self._memory is None else self._memory.append(memory)
        self._state = state if self._state is None else self._state.append(state)
        self._mask = self._memory.mask.cpu().numpy()
        self._sentences += new
        self._beams = self._beams.append(Beams.start(new, config, self._bos_id))
        self._done = np.append(self._done, np.zeros(len(new), dtype=bool))

    def drop_done(self) -> None:
        """Take the sentences that are done out of the batch, and source positions that are padding for all others."""
        keep = np.flatnonzero(~self._done)
        if len(keep) == len(self._done):
            return
        self._sentences = [self._sentences[b] for b in keep]
        self._done = self._done[keep]
        if len(keep):
            beam, width = self._config.beam_size, max(sentence.source_length for sentence in self._sentences)
            self._state = self._state.select(self._tensor((keep[:, None] * beam + np.arange(beam)).ravel()))
            self._memory = self._memory.select(self._tensor(keep)).narrow(width)
            self._mask = self._memory.mask.cpu().numpy()
            self._beams = self._beams.select(keep)
            self._beams.coverage = self._beams.coverage[:, :, : self._mask.shape[1]]
        else:
            self._memory = self._state = None
            self._mask = np.empty((0, 0), dtype=bool)
            self._beams = Beams.start([], self._config, self._bos_id)

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
        self._bans.apply(log_probs, self._sentences, beams, ~self._done)
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
        beams.leading = np.where(goes_on, scores, -np.inf).max(axis=1, initial=-np.inf)
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

    def _with_demands(self, candidates: Candidates, log_probs: Tensor) -> Candidates:
        """Candidates under prefixes, whose next token is the only one, and under required sequences."""
        for b, sentence in enumerate(self._sentences):
            prefix, length = sentence.request.constraints.prefix, self._beams.lengths[b]
            beam, of_token = self._beams.log_probs[b], log_probs[b]
            if self._done[b] or not (length < len(prefix) or sentence.progress):
                continue
            if length < len(prefix):
                token = prefix[length]
                ways = [(p + float(of_token[k, token]), k, token) for k, p in enumerate(beam) if p > -np.inf]
            else:
                found = zip(*(array[b].tolist() for array in candidates), strict=True)
                ways = ways_with_requirements(found, sentence.progress, beam, of_token, self._eos_id)
            for array, column in zip(candidates, range(3), strict=True):
                array[b] = (-np.inf, 0, 0)[column]
                array[b, : len(ways)] = [way[column] for way in ways]
        return candidates

    def _scores(self, candidates: Candidates, weights: np.ndarray | None) -> np.ndarray:
        """Scores (B, C) that the candidates would have if they ended here; it adds the step to the beams' coverage."""
        config, beams = self._config, self._beams
        scores = candidates.log_probs / length_penalty(beams.lengths, config.length_penalty)[:, None]
        if config.coverage_penalty and weights is not None:
            beams.coverage = widened(beams.coverage, weights.shape[2]) + weights
            penalties = coverage_penalty(beams.coverage, self._mask[:, None], config.coverage_penalty)
            scores += np.take_along_axis(penalties, candidates.parents, 1)
        return scores

    def _prune(self, candidates: Candidates, scores: np.ndarray) -> None:
        """Drop what is too far below the best: tokens (before any score), and hypotheses once one has finished.

        Tokens that bring a required sequence forward are kept, however improbable.
        """
        config, beams = self._config, self._beams
        if config.token_pruning < np.inf:
            before = np.take_along_axis(beams.log_probs, candidates.parents, 1)
            steps = candidates.log_probs - np.where(np.isfinite(before), before, 0.0)
            best = np.full_like(beams.log_probs, -np.inf)
            np.maximum.at(best, (np.arange(len(best))[:, None], candidates.parents), steps)
            is_far = steps < np.take_along_axis(best, candidates.parents, 1) - config.token_pruning
            for b, c in np.argwhere(is_far & [[bool(sentence.progress)] for sentence in self._sentences]):
                required = self._sentences[b].next_tokens(candidates.parents[b, c])
                is_far[b, c] = candidates.tokens[b, c] not in required
            candidates.log_probs[is_far] = -np.inf
        if config.hypothesis_pruning < np.inf:
            candidates.log_probs[scores < beams.best[:, None] - config.hypothesis_pruning] = -np.inf

    def _finish(self, candidates: Candidates, scores: np.ndarray, ends: np.ndarray, weights: np.ndarray | None) -> None:
        """Record the candidates that end here (B, C): by eos, or because the sentence is at its limit."""
        for b, c in np.argwhere(ends):
            sentence, parent, token = self._sentences[b], int(candidates.parents[b, c]), int(candidates.tokens[b, c])
            tokens = self._beams.history[b, parent, : self._beams.lengths[b] - 1].tolist()
            is_complete = token == self._eos_id
            hypothesis = Hypothesis(
                tuple(tokens if is_complete else [*tokens, token]),
                float(candidates.log_probs[b, c]),
                float(scores[b, c]),
                is_complete,
            )
            if hypothesis.score > self._beams.ceilings[b]:
                continue
            lacks = sentence.lacks(parent, token)
            attention = weights[b] if self._keep_attention and weights is not None else None
            sentence.finished.append(Finished(lacks, hypothesis, len(sentence.steps), attention, parent))
            if not lacks:
                self._beams.worst[b] = sentence.worst_wanted(self._config.num_hypotheses)
                self._beams.best[b] = max(self._beams.best[b], hypothesis.score)

    def _go_on(
        self, candidates: Candidates, order: np.ndarray, goes_on: np.ndarray, weights: np.ndarray | None
    ) -> None:
        """Make the candidates at `order` (B, K) the new hypotheses; those that do not go on are dead."""
        beams, batch = self._beams, np.arange(len(order))
        log_probs, parents, tokens = (np.take_along_axis(array, order, 1) for array in candidates)
        for sentence, its_parents, its_tokens, b in zip(self._sentences, parents, tokens.tolist(), batch, strict=True):
            if sentence.progress and beams.lengths[b] > len(sentence.request.constraints.prefix):
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
        if config.temperature:
            can_improve = possible > -np.inf
        elif config.beam_size == 1:
            can_improve = (beams.best == -np.inf) & (possible > -np.inf)
        else:
            bound = possible / length_penalty(beams.limits, config.length_penalty)
            can_improve = (bound > beams.worst) & (beams.leading >= beams.worst - config.stop_margin)
            is_settled = (bound <= beams.best) | (beams.leading < beams.best - config.stop_margin)
            # Once settled it stays so, though the score of an unfinished one may rise again later.
            beams.ceilings = np.minimum(beams.ceilings, np.where(is_settled, beams.best, np.inf))
        new = np.flatnonzero(~self._done & ~can_improve)
        self._done[new] = True
        beams.log_probs[new] = -np.inf
        if not all(self._sentences[b].finished for b in new):
            raise FloatingPointError(
                "the model's probabilities are not numbers: its weights are broken; train it again"
            )
        done = [self._sentences[b] for b in new]
        return [(sentence.request.key, sentence.best(config.num_hypotheses)) for sentence in done]
