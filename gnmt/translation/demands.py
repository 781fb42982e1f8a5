"""Demands on lines, from the command line and from a file beside the input, as ids for search."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gnmt.errors import DataError
from gnmt.lines import read_lines
from gnmt.search.constraints import Constraints
from gnmt.tokenizer import Tokenizer, normalize

_KEYS = {"prefix": str, "include": list, "exclude": list}


class Demand(NamedTuple):
    """What is demanded of one line's translation, as text.

    Attributes:
        prefix: whole words that it begins with.
        include: phrases that it must contain.
        exclude: phrases that it must not contain.
    """

    prefix: str = ""
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def read_demands(path: str, exclude: Sequence[str]) -> Iterator[Demand]:
    """Yield the demand of each input line: a JSON object or nothing on each line of the file.

    Args:
        path: the file.
        exclude: phrases that no translation may contain, whatever the file says.

    Raises:
        DataError: a line is no such object; the message names it.
    """
    for number, line in enumerate(read_lines(path), start=1):
        yield _demand(line, f"{path}: line {number}", tuple(exclude))


def _demand(line: str, place: str, exclude: tuple[str, ...]) -> Demand:
    if not line.strip():
        return Demand(exclude=exclude)
    try:
        found: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{place} is no JSON ({error.msg}), expected an object or a blank line") from None
    if not isinstance(found, dict) or not found.keys() <= _KEYS.keys():
        raise DataError(f"{place}, expected an object with the keys {', '.join(_KEYS)}, found {line.strip()[:60]}")
    for key, value in found.items():
        is_valid = isinstance(value, _KEYS[key]) and all(isinstance(item, str) for item in value)
        if not is_valid or not all(normalize(item) for item in (value if isinstance(value, list) else ["x"])):
            raise DataError(
                f"{place}: {key} is {value!r}, expected {'text' if key == 'prefix' else 'a list of phrases'}"
            )
    return Demand(found.get("prefix", ""), tuple(found.get("include", ())), (*exclude, *found.get("exclude", ())))


def constraints_of(demand: Demand, tokenizer: Tokenizer) -> Constraints:
    """The demand as ids.

    What is forbidden is so in all spellings that `Tokenizer.spellings` finds, with a small or a capital letter. A
    longer word that begins with it is forbidden only where it is made of the same pieces and more.
    """
    spellings = {
        spelling
        for phrase in demand.exclude
        for form in {phrase, phrase[:1].upper() + phrase[1:]}
        for spelling in tokenizer.spellings(form)
    }
    return Constraints(
        tuple(tokenizer.encode(demand.prefix)),
        tuple(tuple(ids) for phrase in demand.include if (ids := tokenizer.encode(phrase))),
        tuple(sorted(spellings)),
    )
