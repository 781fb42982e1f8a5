"""Demands on lines, from the command line and from a file beside the input, as ids for search."""

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gnmt.errors import DataError
from gnmt.lines import read_lines
from gnmt.phrases import ForbiddenPhrases, PieceTable, appears, banned_after, forms, may_end
from gnmt.search.constraints import Constraints
from gnmt.tokenizer import Tokenizer, normalize

_KEYS = {"prefix": str, "include": list, "exclude": list}


class Demand(NamedTuple):
    """What is demanded of one line's translation, as text in the form of `normalize`.

    Attributes:
        prefix: whole words that it begins with.
        include: phrases that it must contain.
        exclude: phrases that it must not contain.
    """

    prefix: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def unmet(self, text: str, *, whole_words: bool) -> list[str]:
        """What a translation lacks, or has against the demand, in words."""
        wrong = []
        if self.prefix and not (text.startswith(self.prefix) and (not whole_words or may_end(self.prefix, text))):
            wrong.append(f"does not begin with {self.prefix!r}")
        lacks = [phrase for phrase in self.include if not appears(phrase, text, whole_words=whole_words)]
        has = [phrase for phrase in self.exclude if _has(text, phrase, whole_words=whole_words)]
        wrong += [f"does not contain {phrase!r}" for phrase in lacks]
        return wrong + [f"contains {phrase!r}" for phrase in has]


def _has(text: str, phrase: str, *, whole_words: bool) -> bool:
    return any(appears(form, text, whole_words=whole_words) for form in forms(phrase))


class Demands:
    """Reads demands, and turns them into constraints of search.

    Args:
        tokenizer: of the model.
        whole_words: whether the target language puts spaces between words, so that phrases are looked for as whole
            words.
        exclude: phrases that no translation may contain.
    """

    def __init__(self, tokenizer: Tokenizer, *, whole_words: bool, exclude: Sequence[str]) -> None:
        self._tokenizer, self._whole_words = tokenizer, whole_words
        self._exclude = tuple(map(normalize, exclude))
        # Lines often have the same demand, and looking its pieces up takes a while.
        self.constraints = functools.lru_cache(256)(self._constraints)
        self._ban = functools.lru_cache(256)(self._ban_of)
        self._spelled = functools.lru_cache(4096)(self._spelling)

    @functools.cached_property
    def _table(self) -> PieceTable:
        return PieceTable(self._tokenizer)

    def everywhere(self) -> Demand:
        """What is demanded of a line that has no demand of its own."""
        return Demand(exclude=self._exclude)

    def read(self, path: str) -> Iterator[Demand]:
        """Yield the demand of each input line: a JSON object or nothing on each line of the file.

        Raises:
            DataError: a line is no such object, or demands what it forbids; the message names it.
        """
        for number, line in enumerate(read_lines(path), start=1):
            if line.strip():
                yield self._parse(line, f"{path}: line {number}")
            else:
                yield self.everywhere()

    def _parse(self, line: str, place: str) -> Demand:
        found = _object(line, place)
        include, exclude = (tuple(map(normalize, found.get(key, ()))) for key in ("include", "exclude"))
        demand = Demand(normalize(found.get("prefix", "")), include, (*self._exclude, *exclude))
        for phrase in demand.exclude:
            for wanted in (demand.prefix, *demand.include):
                if _has(wanted, phrase, whole_words=self._whole_words):
                    raise DataError(f"{place} demands {wanted!r} and excludes {phrase!r}, expected only one of them")
        for phrase in demand.include:
            if demand.exclude and self._spelled(phrase, demand.exclude) is None:
                within = [other for other in demand.exclude if any(form in phrase for form in forms(other))]
                raise DataError(
                    f"{place} demands {phrase!r} and excludes {', '.join(map(repr, within))}, which the pieces of this "
                    "vocabulary cannot tell apart, expected only one of them"
                )
        return demand

    def _constraints(self, demand: Demand) -> Constraints:
        prefix, required = demand.prefix, self._required(demand)
        spelled = (self._spelled(phrase, demand.exclude) for phrase in required)
        return Constraints(
            tuple(self._tokenizer.encode(prefix)),
            tuple(sequence for sequence in spelled if sequence is not None),
            self._bans(demand.exclude),
            self._table.words if self._whole_words and (prefix or required) else None,
        )

    def _required(self, demand: Demand) -> list[str]:
        """The phrases that search must bring in: without those that the prefix or a longer phrase has in it."""
        phrases = dict.fromkeys(demand.include)
        others = {phrase: [demand.prefix, *(phrases.keys() - {phrase})] for phrase in phrases}
        return [
            phrase
            for phrase in phrases
            if not any(appears(phrase, other, whole_words=self._whole_words) for other in others[phrase])
        ]

    def _spelling(self, phrase: str, exclude: tuple[str, ...]) -> tuple[int, ...] | None:
        """The pieces of a phrase: the usual ones, or others if those are forbidden; None if all spellings are."""
        bans = self._bans(exclude)
        encode = self._tokenizer.encode if self._whole_words else self._tokenizer.encode_inside
        usual = tuple(encode(phrase))
        if any(token in banned_after(usual[:i], bans) for i, token in enumerate(usual)):
            return self._table.respelled(f" {phrase}" if self._whole_words else phrase, bans)
        return usual

    def _bans(self, exclude: tuple[str, ...]) -> tuple[ForbiddenPhrases, ...]:
        """A ban of what is forbidden in all lines, which is made once, and one of the rest."""
        everywhere = set(self._exclude)
        common, own = (tuple(p for p in exclude if (p in everywhere) == is_common) for is_common in (True, False))
        return tuple(self._ban(phrases) for phrases in (common, own) if phrases)

    def _ban_of(self, phrases: tuple[str, ...]) -> ForbiddenPhrases:
        return ForbiddenPhrases(phrases, self._table, whole_words=self._whole_words)


def _without_repeats(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key!r} stands there twice")
        found[key] = value
    return found


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(line, object_pairs_hook=_without_repeats)
        json.dumps(found, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise DataError(f"{place} is no JSON ({error.msg}), expected an object or a blank line") from None
    except (ValueError, RecursionError) as error:
        # Numbers of thousands of digits, brackets nested without end, halves of characters, keys that come twice.
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise DataError(f"{place} cannot be read ({reason}), expected an object or a blank line") from None
    if not isinstance(found, dict) or not found.keys() <= _KEYS.keys():
        raise DataError(f"{place}, expected an object with the keys {', '.join(_KEYS)}, found {line.strip()[:60]}")
    for key, value in found.items():
        is_valid = isinstance(value, _KEYS[key]) and all(isinstance(item, str) for item in value)
        if not is_valid or not all(normalize(item) for item in (value if isinstance(value, list) else ["x"])):
            raise DataError(
                f"{place}: {key} is {value!r}, expected {'text' if key == 'prefix' else 'a list of phrases'}"
            )
    return found
