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
        open: sequences that have not appeared yet, without the one that is being written.
        current: the sequence that is being written, or nothing.
        written: tokens of `current` that the hypothesis ends with.
    """

    open: tuple[TokenSequence, ...]
    current: TokenSequence = ()
    written: int = 0

    @property
    def missing(self) -> int:
        """Tokens that are still to come."""
        return sum(map(len, self.open)) + len(self.current) - self.written

    def next_tokens(self) -> set[int]:
        """Tokens that bring a required sequence forward: only the next one inside of one."""
        return {self.current[self.written]} if self.current else {sequence[0] for sequence in self.open}

    def after(self, token: int) -> "Progress":
        """The progress with one more token; a sequence that is broken off counts as not begun."""
        sequences = self.open
        if self.current:
            if token == self.current[self.written]:
                return self._step(sequences, self.current, self.written + 1)
            sequences = (*sequences, self.current)
        for i, sequence in enumerate(sequences):
            if sequence[0] == token:
                return self._step((*sequences[:i], *sequences[i + 1 :]), sequence, 1)
        return Progress(sequences)

    @staticmethod
    def _step(sequences: tuple[TokenSequence, ...], current: TokenSequence, written: int) -> "Progress":
        return Progress(sequences) if written == len(current) else Progress(sequences, current, written)


def banned_tokens(tokens: Sequence[int], forbidden: Iterable[TokenSequence], no_repeat_ngram_size: int) -> set[int]:
    """Tokens that may not follow `tokens`: they would complete a forbidden sequence or an n-gram that stands there."""
    banned = {sequence[-1] for sequence in forbidden if _ends_with(tokens, sequence[:-1])}
    if size := no_repeat_ngram_size:
        last = tuple(tokens[len(tokens) - size + 1 :]) if len(tokens) >= size - 1 else None
        banned |= {
            tokens[i + size - 1] for i in range(len(tokens) - size + 1) if tuple(tokens[i : i + size - 1]) == last
        }
    return banned


def _ends_with(tokens: Sequence[int], sequence: TokenSequence) -> bool:
    return len(tokens) >= len(sequence) and tuple(tokens[len(tokens) - len(sequence) :]) == sequence
