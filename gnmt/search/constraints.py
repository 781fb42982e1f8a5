"""What a caller demands of one sentence's translation: a prefix, token sequences that must or must not appear."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

TokenSequence = tuple[int, ...]


class Constraints(NamedTuple):
    """Demands on a translation, as ids.

    Attributes:
        prefix: the translation begins with these tokens.
        required: sequences that must all appear (Hokamp and Liu 2017, arXiv 1704.07138; Post and Vilar 2018,
            arXiv 1804.06609), behind the prefix and without overlap.
        forbidden: sequences that must not appear.
    """

    prefix: TokenSequence = ()
    required: tuple[TokenSequence, ...] = ()
    forbidden: tuple[TokenSequence, ...] = ()


class Progress(NamedTuple):
    """How far one hypothesis has come with the required sequences.

    Attributes:
        open: sequences that have not appeared yet.
        recent: tokens since the last sequence was completed, as many as can still matter.
    """

    open: tuple[TokenSequence, ...]
    recent: TokenSequence = ()

    @property
    def missing(self) -> int:
        """Tokens that are still to come: of all open sequences, less what the hypothesis ends with of one of them."""
        return sum(map(len, self.open)) - max(map(self._written, self.open), default=0)

    def next_tokens(self) -> set[int]:
        """Of each open sequence the token that brings it forward."""
        return {sequence[self._written(sequence)] for sequence in self.open}

    def after(self, token: int) -> "Progress":
        """The progress with one more token; sequences do not overlap, the longest one that it completes counts."""
        recent = (*self.recent, token)
        for i in sorted(range(len(self.open)), key=lambda i: -len(self.open[i])):
            if recent[-len(self.open[i]) :] == self.open[i]:
                return Progress((*self.open[:i], *self.open[i + 1 :]))
        longest = max(map(len, self.open), default=1)
        return Progress(self.open, recent[1 - longest :] if longest > 1 else ())

    def _written(self, sequence: TokenSequence) -> int:
        """Length of the longest beginning of the sequence that the recent tokens end with."""
        longest = min(len(sequence) - 1, len(self.recent))
        return next((n for n in range(longest, 0, -1) if self.recent[-n:] == sequence[:n]), 0)


# Of what a hypothesis must not end with but for its last token: the last tokens.
Endings = dict[TokenSequence, set[int]]


def endings_of(forbidden: Iterable[TokenSequence]) -> Endings:
    """Forbidden sequences in the form in which `banned_tokens` looks them up."""
    endings: Endings = {}
    for sequence in forbidden:
        endings.setdefault(sequence[:-1], set()).add(sequence[-1])
    return endings


def banned_tokens(tokens: Sequence[int], endings: Endings, no_repeat_ngram_size: int) -> set[int]:
    """Tokens that may not follow `tokens`: they would complete a forbidden sequence or an n-gram that stands there."""
    banned: set[int] = set()
    for size in {len(beginning) for beginning in endings}:
        if size <= len(tokens):
            banned |= endings.get(tuple(tokens[len(tokens) - size :]), set())
    if (size := no_repeat_ngram_size) and len(tokens) >= size - 1:
        last = tokens[len(tokens) - size + 1 :]
        banned |= {tokens[i + size - 1] for i in range(len(tokens) - size + 1) if tokens[i : i + size - 1] == last}
    return banned
