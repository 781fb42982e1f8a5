"""Text -> the sentences in it: where a text that is too long for one search can be cut."""

import bisect
import itertools
import re
from collections.abc import Callable, Sequence

# Written as escapes: right quotes, left quotes, and the ideographic marks, which need no white space behind them.
_CLOSING, _OPENING = "\"'\u201d\u2019\u00bb)\\]", "\"'\u201c\u2018\u201e\u00ab\u00bf\u00a1(\\["
_WIDE_ENDS, _WIDE_COMMAS = "\u3002\uff01\uff1f", "\uff0c\uff1b\uff1a\u3001"
# White space behind a full stop, question or exclamation mark, before what can begin a sentence.
_SENTENCE_END = re.compile(rf"(?<=[.!?\u2026])[{_CLOSING}]*\s+(?=[^\W_]|[{_OPENING}])|(?<=[{_WIDE_ENDS}])(?=\S)")
_CLAUSE_END = re.compile(rf"(?<=[,;:])\s+|(?<=[{_WIDE_COMMAS}])(?=\S)")
_TITLES = frozenset(("Dr", "Mr", "Mrs", "Ms", "Prof", "St", "Nr", "vs", "bzw", "Hr", "Fr"))
_LONGEST_ABBREVIATION = 20
_SPACE = re.compile(r"\s+")


def split_sentences(text: str) -> list[str]:
    """Cut a text behind its sentence ends; nothing but white space between sentences gets lost."""
    pieces, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        # What closes the sentence, such as a quote, stands inside the match and stays with it.
        end = match.end() - len(match.group()) + len(match.group().rstrip())
        begins_small = text[match.end() : match.end() + 1].islower()
        if not begins_small and not _is_abbreviation(text[max(start, end - _LONGEST_ABBREVIATION) : end]):
            pieces.append(text[start:end].strip())
            start = match.end()
    return [piece for piece in [*pieces, text[start:].strip()] if piece]


def _is_abbreviation(text: str) -> bool:
    """Whether the text ends with one letter, a number or a title before a full stop: `J. Smith`, `25. September`."""
    last = text.rsplit(maxsplit=1)[-1] if text.split() else ""
    word = last.strip(_OPENING + ".")
    return last.endswith(".") and (len(word) == 1 or word.isdigit() or word in _TITLES)


def split_long(text: str, limit: int, count: Callable[[str], int]) -> list[str]:
    """Cut a text into parts of at most `limit` tokens: behind sentences, else clauses, else words, else anywhere.

    Neighbouring sentences stay together as long as they fit.

    Args:
        text: one line.
        limit: tokens of a part, at least 1.
        count: tokens of a text.
    """
    return _cut(text, limit, count, [split_sentences, _CLAUSE_END.split, _SPACE.split, list])


def _cut(text: str, limit: int, count: Callable[[str], int], ways: Sequence[Callable[[str], list[str]]]) -> list[str]:
    if count(text) <= limit or not ways:
        return [text]
    parts: list[str] = []
    for piece in ways[0](text):
        is_wide = bool(parts) and parts[-1][-1:] in _WIDE_ENDS + _WIDE_COMMAS
        glue = "" if len(ways) == 1 or is_wide else " "
        joined = parts[-1] + glue + piece if parts else piece
        if parts and count(joined) <= limit:
            parts[-1] = joined
        else:
            parts += _cut(piece, limit, count, ways[1:])
    return parts


def first_words(text: str, parts: Sequence[str]) -> list[int]:
    """The white-space word of a text, counted from 0, in which each of its parts begins.

    Args:
        text: all of it.
        parts: the text cut anywhere, in order; white space between or in them need not be the text's.
    """
    word_ends = list(itertools.accumulate(map(len, text.split())))
    lengths = (sum(map(len, part.split())) for part in parts)
    starts = itertools.accumulate(lengths, initial=0)
    return [bisect.bisect_right(word_ends, start) for start, _ in zip(starts, parts, strict=False)]
