"""What is read: the source text, and beside it demands and references, which must have the same number of lines."""

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from gnmt.errors import ConfigError, DataError
from gnmt.lines import read_blocks, read_lines
from gnmt.translation.demands import Demand, Demands
from gnmt.translation.ranks import Rank
from gnmt.translation.streams import is_regular, open_input
from gnmt.translation.units import Unit, paragraphs, single_lines
from gnmt.translator import WINDOW

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
            DataError: demands or references end too early or too late; all before has been yielded.
        """
        demands = self._all_demands(wanted.start)
        references = iter(self.references or ())
        done = 0
        for units in self._cut(wanted):
            these = list(itertools.islice(demands, len(units)))
            self._require_so_far(self._options.constraints, len(these), len(units), done)
            given = None
            if self.references is not None:
                each = self._references_each
                given = list(itertools.islice(references, each * len(units)))
                self._require_so_far(self._options.reference, len(given) // each, len(units), done)
            yield Window(units, these, given)
            done += len(units)
        if self._rank.world_size == 1:  # other ranks' lines stand behind this one's
            behind = (self._options.constraints, demands), (self._options.reference, references)
            for path, rest in behind:
                if path and next(rest, None) is not None:
                    raise DataError(f"{path} has more lines than {self._name}, expected as many; all was translated")

    def _require_so_far(self, path: str, found: int, expected: int, done: int) -> None:
        if found < expected:
            raise DataError(f"{path} ends before line {done + found + 1} of {self._name}, expected as many lines")

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
