"""Words and phrases that must or must not appear in a translation, however they are cut into pieces."""

import bisect
import functools
import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

import numpy as np

from gnmt.search.constraints import Ban, WordPieces
from gnmt.tokenizer import ALTERED, Tokenizer, normalize

_LONGEST_CHARACTER = 4  # bytes of UTF-8


def is_word_character(character: str) -> bool:
    """Whether a character is part of a word: letters, digits, what is written on them, and the low line."""
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")


def forms(phrase: str) -> set[str]:
    """How a phrase can stand in a text: as it is, and at the start of a sentence."""
    phrase = normalize(phrase)
    return {phrase, phrase[:1].upper() + phrase[1:]}


def appears(phrase: str, text: str, *, whole_words: bool = True) -> bool:
    """Whether a text has the phrase in it.

    Args:
        phrase: in the form of `normalize`.
        text: in the same form.
        whole_words: whether a phrase that is part of longer words does not count.
    """
    start = text.find(phrase)
    while start >= 0:
        if not whole_words or (may_begin(phrase, text[start - 1 : start]) and may_end(phrase, text, start)):
            return True
        start = text.find(phrase, start + 1)
    return False


def may_begin(phrase: str, before: str) -> bool:
    """Whether a phrase behind a character (or none) does not go on with a word."""
    return not (before and is_word_character(before) and is_word_character(phrase[0]))


def may_end(phrase: str, text: str, start: int = 0) -> bool:
    """Whether a phrase that stands in a text at `start` is not gone on with by a word."""
    behind = text[start + len(phrase) : start + len(phrase) + 1]
    return not (behind and is_word_character(behind) and is_word_character(phrase[-1]))


class Spelling(NamedTuple):
    """The tokens that bring a phrase into a text.

    Attributes:
        always: those that have it in them.
        last: by the beginning of it that the text must end with, and whether a longer word must not go on with that
            beginning: those that complete it.
    """

    always: set[int]
    last: dict[tuple[bytes, bool], set[int]]


class PieceTable:
    """The bytes that each piece of a vocabulary stands for, ready to be looked up.

    Attributes:
        bytes_of: of each id; nothing for special ones.
        ids_of: of each such sequence of bytes.
        words: ids of pieces that go on with a word, or can be gone on with.
        altered: of the characters that `normalize` alters: spelled in bytes they would hide between the letters of a
            phrase, or stand for its spaces.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.bytes_of = tokenizer.piece_bytes()
        self.ids_of: dict[bytes, list[int]] = {}
        ending, continuing = set(), []
        for token, piece in enumerate(self.bytes_of):
            self.ids_of.setdefault(piece, []).append(token)
            text = piece.decode(errors="replace")
            is_part_of_letter = len(piece) == 1 and piece[0] >= 0x80  # perhaps
            if is_part_of_letter or (text and is_word_character(text[0])):
                continuing.append(token)
            if is_part_of_letter or (text and is_word_character(text[-1])):
                ending.add(token)
        self.words = WordPieces(ending, np.array(continuing, dtype=np.int64))
        self._sorted = sorted(self.ids_of)
        # All in one, with a byte between them that stands in no text.
        self._all = b"\xff".join(self._sorted) + b"\xff"
        self._starts = [0, *itertools.accumulate(len(piece) + 1 for piece in self._sorted)]
        self._longest = max(map(len, self._sorted))
        self.spelling = functools.lru_cache(1 << 14)(self._spelling)
        self.altered = _joined(self.spelling(character, whole_words=False) for character in ALTERED)

    def respelled(self, text: str, bans: Iterable[Ban]) -> tuple[int, ...] | None:
        """A text in the fewest pieces that the bans allow; None if they allow no spelling of it."""
        whole = text.encode()
        found: dict[int, tuple[int, ...]] = {0: ()}
        for start in range(len(whole)):
            if start not in found:
                continue
            banned = banned_after(found[start], bans)
            for end in range(start + 1, min(start + self._longest, len(whole)) + 1):
                # What is spelled as a byte too has a piece with a greater id.
                token = max(set(self.ids_of.get(whole[start:end], ())) - banned, default=None)
                if token is not None and (end not in found or len(found[end]) > len(found[start]) + 1):
                    found[end] = (*found[start], token)
        return found.get(len(whole))

    def _spelling(self, form: str, *, whole_words: bool) -> Spelling:
        whole = form.encode()
        is_word = whole_words and is_word_character(form[0])
        # A letter in front keeps a phrase at the start of a piece from counting: a longer word may end with the piece.
        start = "x" if is_word else ""
        spelling = Spelling(set(), {})
        for piece in self._holding(whole):
            if appears(form, start + _text(piece), whole_words=whole_words):
                spelling.always.update(self.ids_of[piece])
        for cut in range(max(0 if is_word else 1, len(whole) - self._longest), len(whole)):
            found: set[int] = set()
            for piece in self._starting_with(whole[cut:]):
                if not whole_words or may_end(form, form + _text(piece[len(whole) - cut :])):
                    found.update(self.ids_of[piece])
            if found:
                spelling.last[whole[:cut], is_word] = found
        return spelling

    def _holding(self, part: bytes) -> Iterator[bytes]:
        found = self._all.find(part)
        while found >= 0:
            i = bisect.bisect_right(self._starts, found)
            yield self._sorted[i - 1]
            found = self._all.find(part, self._starts[i])

    def _starting_with(self, beginning: bytes) -> Iterator[bytes]:
        for i in range(bisect.bisect_left(self._sorted, beginning), len(self._sorted)):
            if not self._sorted[i].startswith(beginning):
                break
            yield self._sorted[i]


class ForbiddenPhrases:
    """A ban of phrases for search (`gnmt.search.constraints.Ban`).

    It works on the bytes that pieces stand for, so that a phrase is forbidden however it is cut into pieces. What is
    spelled as a forbidden phrase and more pieces of the same word is banned too: search cannot know yet that the word
    will go on. Bytes of characters that `normalize` alters are forbidden as well.

    Args:
        phrases: each with something to see in it; one with a small first letter is forbidden with a capital one too.
        table: of the vocabulary that is searched.
        whole_words: whether a phrase may stand inside a piece that is a longer word.

    Attributes:
        always: (n,) int64, the tokens that have a phrase in them.
    """

    def __init__(self, phrases: Iterable[str], table: PieceTable, *, whole_words: bool = True) -> None:
        self._bytes_of = table.bytes_of
        spellings = [
            table.spelling(form, whole_words=whole_words)
            for form in sorted({form for phrase in phrases for form in forms(phrase)})
        ]
        always, self._last = _joined([table.altered, *spellings])
        self.always = np.array(sorted(always), dtype=np.int64)
        self._sizes = sorted({len(beginning) for beginning, _ in self._last})

    def after(self, tokens: Sequence[int]) -> Set[int]:
        """The tokens that would complete a phrase."""
        banned: set[int] = set()
        text = self._end_of(tokens, max(self._sizes, default=0) + _LONGEST_CHARACTER)
        # A decoded text has single spaces only: a space may also fall together with one at the start of the next piece.
        for end in {text, text.rstrip(b" ")}:
            for size in self._sizes[: bisect.bisect_right(self._sizes, len(end))]:
                beginning = end[len(end) - size :]
                banned |= self._last.get((beginning, False), set())
                if (last := self._last.get((beginning, True))) and not _ends_with_word(end[: len(end) - size]):
                    banned |= last
        return banned

    def _end_of(self, tokens: Sequence[int], size: int) -> bytes:
        """At least the last `size` bytes of the text, if it has so many, without spaces behind spaces."""
        text = b""
        for token in reversed(tokens):
            if len(text) >= size:
                break
            piece = self._bytes_of[token]
            text = piece + (text.lstrip(b" ") if piece.endswith(b" ") else text)
        return text


def banned_after(tokens: Sequence[int], bans: Iterable[Ban]) -> set[int]:
    """All tokens that must not follow these ones."""
    return {token for ban in bans for token in (*ban.always.tolist(), *ban.after(tokens))}


def _joined(spellings: Iterable[Spelling]) -> Spelling:
    joined = Spelling(set(), {})
    for spelling in spellings:
        joined.always.update(spelling.always)
        for beginning, tokens in spelling.last.items():
            joined.last.setdefault(beginning, set()).update(tokens)
    return joined


def _ends_with_word(text: bytes) -> bool:
    # What is no whole character at its end is shown as one that belongs to no word.
    last = text[-_LONGEST_CHARACTER:].decode(errors="replace")[-1:]
    return bool(last) and is_word_character(last)


def _text(part: bytes) -> str:
    """What stands in some bytes, without the characters that are cut off at their ends."""
    return part.decode(errors="ignore")
