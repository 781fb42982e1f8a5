"""What must not follow a hypothesis: its log-probability becomes minus infinity. Shapes: B, K, V as in `gnmt.nn`."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from gnmt.search.constraints import repeating
from gnmt.search.hypotheses import Beams, Sentence


class Bans:
    """Takes from each hypothesis the tokens that must not come next.

    These are the forbidden ones, repeated n-grams, what would make a longer word of a demanded one, and the end while
    something required is missing. A prefix is the caller's: nothing in it is banned. Requirements come before
    repetitions: a token that brings a required sequence forward may repeat an n-gram. Where none of them can come
    forward the hypothesis may end without them; search goes on for one that has everything.

    Args:
        no_repeat_ngram_size: size of the n-grams that come only once; 0 for none.
        eos_id: the token that ends a hypothesis.
    """

    def __init__(self, no_repeat_ngram_size: int, eos_id: int) -> None:
        self._ngram_size, self._eos_id = no_repeat_ngram_size, eos_id

    def apply(self, log_probs: Tensor, sentences: Sequence[Sentence], beams: Beams, is_active: np.ndarray) -> None:
        """Change the log-probabilities of the next token.

        Args:
            log_probs: (B, K, V), written to.
            sentences: of the batch.
            beams: their hypotheses.
            is_active: (B,) bool, False for sentences whose rows do not matter.
        """
        # Arrays, half a vocabulary perhaps, are shared by many hypotheses: each is applied to all of them at once.
        of_array: dict[int, tuple[np.ndarray, list[tuple[int, int]]]] = {}
        single: list[tuple[int, int, int]] = []
        wanted: list[tuple[int, int, int]] = []
        for b in np.flatnonzero(is_active).tolist():
            length = int(beams.lengths[b])
            if not self._is_restricted(sentences[b], length):
                continue
            for k in np.flatnonzero(np.isfinite(beams.log_probs[b])).tolist():
                tokens = beams.history[b, k, :length].tolist()
                for array in _arrays(sentences[b], k, tokens):
                    of_array.setdefault(id(array), (array, []))[1].append((b, k))
                single += [(b, k, token) for token in self._single(sentences[b], k, tokens)]
                wanted += [(b, k, token) for token in sentences[b].next_tokens(k)]
        for array, rows in of_array.values():
            b_index, k_index = _tensor(rows, log_probs).T[:, :, None]
            log_probs[b_index, k_index, torch.from_numpy(array).to(log_probs.device)] = -torch.inf
        _exclude(log_probs, single)
        if wanted:
            possible = log_probs[tuple(_tensor(wanted, log_probs).T)].isfinite().tolist()
            waiting = {way[:2] for way, is_possible in zip(wanted, possible, strict=True) if is_possible}
            _exclude(log_probs, [(b, k, self._eos_id) for b, k in sorted(waiting)])

    def _is_restricted(self, sentence: Sentence, length: int) -> bool:
        prefix, _, forbidden, words = sentence.request.constraints
        if length < len(prefix):
            return False
        return bool(forbidden or sentence.progress or self._ngram_size or (words and length == len(prefix)))

    def _single(self, sentence: Sentence, k: int, tokens: list[int]) -> set[int]:
        banned: set[int] = set()
        if self._ngram_size:
            banned = repeating(tokens, self._ngram_size) - sentence.next_tokens(k)
        return banned.union(*(ban.after(tokens) for ban in sentence.request.constraints.forbidden))


def _arrays(sentence: Sentence, k: int, tokens: list[int]) -> Iterator[np.ndarray]:
    prefix, _, forbidden, words = sentence.request.constraints
    yield from (ban.always for ban in forbidden)
    is_at_end = (prefix and len(tokens) == len(prefix)) or (sentence.progress and sentence.progress[k].at_end)
    if words and is_at_end and tokens[-1] in words.ending:
        yield words.continuing


def _exclude(log_probs: Tensor, rows: list[tuple[int, int, int]]) -> None:
    if rows:
        log_probs[tuple(_tensor(rows, log_probs).T)] = -torch.inf


def _tensor(rows: Sequence[tuple[int, ...]], like: Tensor) -> Tensor:
    return torch.tensor(rows, dtype=torch.int64, device=like.device)
