"""What is read: the source text, and beside it demands and references, which must have the same number of lines."""

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from gnmt.errors import ConfigError, DataError, GNMTError
from gnmt.lines import read_blocks, read_lines
from gnmt.translation.demands import Demand, Demands
from gnmt.translation.ranks import Rank
from gnmt.translation.streams import is_regular, open_input
from gnmt.translation.units import Unit, paragraphs, single_lines
from gnmt.translator import WINDOW

T = TypeVar("T")

# A window is written as a whole: the first one is small, the others hold up to WINDOW lines or this many characters.
_FIRST_WINDOW, _CHARACTERS = 256, 100_000


class Window(NamedTuple):
    """What is translated together.

    Attributes:
        units: lines or paragraphs.
        demands: on the translation of each.
        references: of each, as many as the command line says; None if there are none.
    """

    units: list[Unit]
    demands: list[Demand]
    references: list[str] | None


class Inputs:
    """Reads everything that belongs to the lines of the source text, window by window.

    Args:
        options: the parsed command line.
        rank: which part of the text is wanted.
        demands: reads demands.

    Raises:
        DataError: a file cannot be read.
    """

    def __init__(self, options: argparse.Namespace, rank: Rank, demands: Demands) -> None:
        self._options, self._rank, self._demands = options, rank, demands
        self._name = "standard input" if options.input == "-" else options.input
        self.references = list(read_lines(options.reference)) if options.reference else None
        self._has_grown = False
        self._references_each = options.n_best if options.score_only else 1

    def __enter__(self) -> Self:
        self._opened = open_input(self._options.input)
        self._source = self._opened.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.__exit__(*error)  # type: ignore[arg-type]

    def check(self) -> range:
        """Read a regular file once, to find text that is not UTF-8 and files that do not belong together beforehand.

        Returns:
            the units, counted from 0, that are wanted.

        Raises:
            DataError: something cannot be used; the message names file and line.
            ConfigError: a pipe, to be shared among several ranks.
        """
        if not is_regular(self._source):
            if self._rank.world_size > 1:
                raise ConfigError(f"{self._name} is no regular file, expected one to share among several ranks")
            return range(sys.maxsize)
        start = self._source.tell()
        lines = sum(len(units) for units in self._units())
        self._source.seek(start)
        constraints = self._options.constraints
        if constraints and Path(constraints).is_file():  # a pipe can be read only once
            self._require(constraints, sum(1 for _ in self._demands.read(constraints)), lines, 1)
        if self.references is not None:
            expected = self._references_each * lines
            self._require(self._options.reference, len(self.references), expected, self._references_each)
        return self._rank.lines(lines)

    def _require(self, path: str, found: int, expected: int, each: int) -> None:
        if found != expected:
            lines = expected // each
            wanted = "one line for each" if each == 1 else f"{each} lines for each"
            raise DataError(f"{path} has {found} lines and {self._name} has {lines}, expected {wanted}")

    def windows(self, wanted: range) -> Iterator[Window]:
        """Yield the wanted units, cut into windows in the same way each time.

        Raises:
            DataError: demands or references are wrong, end too early or too late, or the text has changed since it was
                checked; all that can be translated has been yielded.
        """
        demands = self._all_demands(wanted.start)
        references = iter(self.references) if self.references is not None else None
        each, done = self._references_each, 0
        for units in self._cut(wanted):
            these, failure = _take(demands, len(units))
            given = None if references is None else _take(references, each * len(units))[0]
            complete = min(len(these), len(units) if given is None else len(given) // each)
            if complete:
                yield Window(units[:complete], these[:complete], None if given is None else given[: each * complete])
            done += complete
            if failure:
                raise failure
            if complete < len(units):
                path = self._options.constraints if complete == len(these) else self._options.reference
                raise DataError(f"{path} ends before line {done + 1} of {self._name}, expected as many lines")
        self._check_ends(wanted, done, demands, references)

    def _check_ends(
        self, wanted: range, done: int, demands: Iterator[Demand], references: Iterator[str] | None
    ) -> None:
        """Notice what can be seen only at the end: files that go on, a text that changed meanwhile."""
        if is_regular(self._source) and done < len(wanted):
            raise DataError(f"{self._name} lost lines while it was read: {done} were left of {len(wanted)}")
        if self._rank.world_size > 1:  # other ranks' lines stand behind this one's
            return
        if self._has_grown:
            raise DataError(f"{self._name} got more lines while it was read; only the first {done} were translated")
        behind = (self._options.constraints, demands), (self._options.reference, references or iter(()))
        for path, rest in behind:
            if path and next(rest, None) is not None:
                raise DataError(f"{path} has more lines than {self._name}, expected as many; all was translated")

    def _all_demands(self, start: int) -> Iterator[Demand]:
        if not self._options.constraints:
            return itertools.repeat(self._demands.everywhere())
        return itertools.islice(self._demands.read(self._options.constraints), start, None)

    def _units(self) -> Iterator[list[Unit]]:
        blocks = read_blocks(self._source, self._name)
        return paragraphs(blocks) if self._options.paragraphs else single_lines(blocks)

    def _cut(self, wanted: range) -> Iterator[list[Unit]]:
        size, first = _FIRST_WINDOW, 0
        for block in self._units():
            start, end = (min(max(limit - first, 0), len(block)) for limit in (wanted.start, wanted.stop))
            first += len(block)
            while start < end:
                lengths = itertools.accumulate(len(unit.text) for unit in block[start : min(start + size, end)])
                stop = start + max(1, sum(length <= _CHARACTERS for length in lengths))
                yield block[start:stop]
                start, size = stop, WINDOW
            if first > wanted.stop:
                self._has_grown = True
                return


def _take(items: Iterator[T], number: int) -> tuple[list[T], GNMTError | None]:
    """The next items, and the error that ended them early."""
    found: list[T] = []
    try:
        found.extend(itertools.islice(items, number))
    except GNMTError as error:
        return found, error
    return found, None
