"""Words and phrases that must or must not appear in a translation, whatever pieces they are spelled with."""

import unicodedata
from collections.abc import Iterable, Sequence, Set

from gnmt.search.constraints import WordPieces
from gnmt.tokenizer import Tokenizer, normalize

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
        if not whole_words or (_may_begin(phrase, text[:start]) and _may_end(phrase, text[start + len(phrase) :])):
            return True
        start = text.find(phrase, start + 1)
    return False


def _may_begin(phrase: str, before: str) -> bool:
    return not (before and is_word_character(before[-1]) and is_word_character(phrase[0]))


def _may_end(phrase: str, behind: str) -> bool:
    return not (behind and is_word_character(behind[0]) and is_word_character(phrase[-1]))


class PieceTable:
    """The bytes that each piece of a vocabulary stands for, ready to be looked up.

    Attributes:
        bytes_of: of each id; nothing for special ones.
        ids_of: of each such sequence of bytes.
        mixed: ids of pieces that hold word characters and others, a space at their start left aside.
        words: ids of pieces that go on with a word, or can be gone on with.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.bytes_of = tokenizer.piece_bytes()
        self.ids_of: dict[bytes, list[int]] = {}
        self.mixed: list[int] = []
        ending, continuing = set(), set()
        for token, piece in enumerate(self.bytes_of):
            self.ids_of.setdefault(piece, []).append(token)
            text = piece.decode(errors="replace")
            if len({is_word_character(character) for character in text.removeprefix(" ")}) > 1:
                self.mixed.append(token)
            is_part_of_letter = len(piece) == 1 and piece[0] >= 0x80  # perhaps
            if is_part_of_letter or (text and is_word_character(text[0])):
                continuing.add(token)
            if is_part_of_letter or (text and is_word_character(text[-1])):
                ending.add(token)
        self.words = WordPieces(ending, continuing)


class ForbiddenPhrases:
    """A ban of phrases for search (`gnmt.search.constraints.Ban`).

    It works on the bytes that pieces stand for, so that no other spelling gets round it. What is spelled as a forbidden
    phrase and more pieces of the same word is banned too: search cannot know yet that the word will go on.

    Args:
        phrases: each with something to see in it; one with a small first letter is forbidden with a capital one too.
        table: of the vocabulary that is searched.
        whole_words: whether a phrase may stand inside a piece that is a longer word.
    """

    def __init__(self, phrases: Iterable[str], table: PieceTable, *, whole_words: bool = True) -> None:
        self._bytes_of, self._whole_words = table.bytes_of, whole_words
        self._always: set[int] = set()
        self._last: dict[bytes, set[int]] = {}
        for form in {form for phrase in phrases for form in forms(phrase)}:
            self._forbid(form, table)
        self._sizes = sorted({len(beginning) for beginning in self._last})

    def after(self, tokens: Sequence[int]) -> Set[int]:
        """The tokens that would complete a phrase."""
        banned = set(self._always)
        text = self._end_of(tokens, self._sizes[-1] + _LONGEST_CHARACTER if self._sizes else 0)
        # A decoded text has single spaces only: a space may also fall together with one at the start of the next piece.
        for end in {text, text.rstrip(b" ")}:
            for size in self._sizes:
                before, beginning = end[: len(end) - size], end[len(end) - size :]
                if len(beginning) == size and beginning in self._last and self._is_start(before, beginning):
                    banned |= self._last[beginning]
        return banned

    def _forbid(self, form: str, table: PieceTable) -> None:
        """Note the pieces that have the phrase in them and, for each of its beginnings, those that complete it."""
        whole, longest = form.encode(), max(map(len, table.bytes_of))
        is_word = self._whole_words and is_word_character(form[0])
        is_plain = is_word and is_word_character(form[-1])
        others = table.mixed if is_plain else range(len(table.bytes_of))
        # A letter in front keeps a phrase at the start of a piece from counting: a longer word may end with the piece.
        inside = (token for token in others if whole in table.bytes_of[token])
        start = "x" if is_word else ""
        self._always.update(t for t in inside if self._appears(form, start + _text(table.bytes_of[t])))
        self._always.update(table.ids_of.get(b" " + whole, ()))
        for cut in range(max(0 if is_word else 1, len(whole) - longest), len(whole)):
            rest = whole[cut:]
            found = set(table.ids_of.get(rest, ()))
            for token in others:
                piece = table.bytes_of[token]
                if piece.startswith(rest) and not (self._whole_words and not _may_end(form, _text(piece[len(rest) :]))):
                    found.add(token)
            if found:
                self._last.setdefault(whole[:cut], set()).update(found)

    def _appears(self, form: str, text: str) -> bool:
        return appears(form, text, whole_words=self._whole_words)

    def _is_start(self, before: bytes, beginning: bytes) -> bool:
        """Whether the beginning of a phrase is no part of a longer word that began before it."""
        first, last = _text(beginning)[:1] or "x", _text(before[-_LONGEST_CHARACTER:])[-1:]
        return not (self._whole_words and last and is_word_character(last) and is_word_character(first))

    def _end_of(self, tokens: Sequence[int], size: int) -> bytes:
        """At least the last `size` bytes of the text, if it has so many, without spaces behind spaces."""
        text = b""
        for token in reversed(tokens):
            if len(text) >= size:
                break
            piece = self._bytes_of[token]
            text = piece + (text.lstrip(b" ") if piece.endswith(b" ") else text)
        return text


def _text(part: bytes) -> str:
    """What stands in some bytes, without the characters that are cut off at their ends."""
    return part.decode(errors="ignore")
