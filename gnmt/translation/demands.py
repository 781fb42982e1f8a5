"""Demands on lines, from the command line and from a file beside the input, as ids for search."""

import functools
import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gnmt.errors import DataError
from gnmt.lines import read_lines
from gnmt.phrases import ForbiddenPhrases, PieceTable, appears, forms
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
        lacks = [phrase for phrase in self.include if not appears(phrase, text, whole_words=whole_words)]
        has = [phrase for phrase in self.exclude if _has(text, phrase, whole_words=whole_words)]
        return [f"does not contain {phrase!r}" for phrase in lacks] + [f"contains {phrase!r}" for phrase in has]


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
        self._table = PieceTable(tokenizer)
        # Lines often have the same demand, and looking its pieces up takes a while.
        self.constraints = functools.lru_cache(256)(self._constraints)

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
        return demand

    def _constraints(self, demand: Demand) -> Constraints:
        forbidden = ForbiddenPhrases(demand.exclude, self._table, whole_words=self._whole_words)
        has_words = self._whole_words and (demand.prefix or demand.include)
        return Constraints(
            tuple(self._tokenizer.encode(demand.prefix)),
            tuple(tuple(self._tokenizer.encode(phrase)) for phrase in demand.include),
            forbidden if demand.exclude else None,
            self._table.words if has_words else None,
        )


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        found: Any = json.loads(line)
        json.dumps(found, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise DataError(f"{place} is no JSON ({error.msg}), expected an object or a blank line") from None
    except (ValueError, RecursionError) as error:
        # Numbers of thousands of digits, brackets nested without end, halves of characters (lone surrogates).
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
