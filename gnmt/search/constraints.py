"""What a caller demands of one sentence's translation: a prefix, token sequences that must or must not appear."""

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple, Protocol, Self

import numpy as np

TokenSequence = tuple[int, ...]


class Ban(Protocol):
    """What must not appear."""

    @property
    def always(self) -> np.ndarray:
        """(n,) int64, the tokens that must not appear anywhere."""

    def after(self, tokens: Sequence[int]) -> Set[int]:
        """The other tokens that must not follow these ones, which hold all since the start."""


class ForbiddenSequences:
    """A ban of token sequences.

    Args:
        sequences: each of at least one token.
    """

    def __init__(self, sequences: Iterable[TokenSequence]) -> None:
        self._last: dict[TokenSequence, set[int]] = {}
        for sequence in sequences:
            self._last.setdefault(sequence[:-1], set()).add(sequence[-1])
        self.always = np.array(sorted(self._last.pop((), ())), dtype=np.int64)
        self._sizes = {len(beginning) for beginning in self._last}

    def after(self, tokens: Sequence[int]) -> Set[int]:
        """The last tokens of longer sequences whose others stand at the end of `tokens`."""
        ends = (tuple(tokens[len(tokens) - size :]) for size in self._sizes if size <= len(tokens))
        return set().union(*(self._last.get(end, set()) for end in ends))


class WordPieces(NamedTuple):
    """Tokens that can be part of a longer word.

    Attributes:
        ending: those that end with a letter or the like.
        continuing: (n,) int64, those that begin with one, without a space before it.
    """

    ending: Set[int]
    continuing: np.ndarray


class Constraints(NamedTuple):
    """Demands on a translation, as ids.

    Attributes:
        prefix: the translation begins with these tokens.
        required: sequences that must all appear (Hokamp and Liu 2017, arXiv 1704.07138; Post and Vilar 2018,
            arXiv 1804.06609), without overlap. They may begin in the prefix, but must end behind it.
        forbidden: what must not appear behind the prefix.
        words: if given, the word that ends the prefix or a required sequence is not continued.
    """

    prefix: TokenSequence = ()
    required: tuple[TokenSequence, ...] = ()
    forbidden: tuple[Ban, ...] = ()
    words: WordPieces | None = None


class Progress(NamedTuple):
    """How far one hypothesis has come with the required sequences.

    Attributes:
        open: sequences that have not appeared yet.
        recent: tokens since the last sequence was completed, as many as can still matter.
        at_end: whether the last token completed a sequence.
    """

    open: tuple[TokenSequence, ...]
    recent: TokenSequence = ()
    at_end: bool = False

    @classmethod
    def behind(cls, prefix: TokenSequence, required: tuple[TokenSequence, ...]) -> Self:
        """The progress before the first token behind a prefix, in which a sequence may have begun."""
        longest = max(map(len, required), default=1)
        return cls(required, prefix[max(0, len(prefix) + 1 - longest) :])

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
                return Progress((*self.open[:i], *self.open[i + 1 :]), at_end=True)
        longest = max(map(len, self.open), default=1)
        return Progress(self.open, recent[1 - longest :] if longest > 1 else ())

    def _written(self, sequence: TokenSequence) -> int:
        """Length of the longest beginning of the sequence that the recent tokens end with."""
        longest = min(len(sequence) - 1, len(self.recent))
        return next((n for n in range(longest, 0, -1) if self.recent[-n:] == sequence[:n]), 0)


def repeating(tokens: Sequence[int], size: int) -> set[int]:
    """Tokens that would repeat an n-gram of `size` tokens if they came next."""
    if len(tokens) < size - 1:
        return set()
    last = tokens[len(tokens) - size + 1 :]
    return {tokens[i + size - 1] for i in range(len(tokens) - size + 1) if tokens[i : i + size - 1] == last}
