"""What one output line belongs to: an input line, or a paragraph of wrapped lines."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gnmt.tokenizer import normalize


class Unit(NamedTuple):
    """A text that is translated to one line.

    Attributes:
        number: of its first line, from 1.
        text: of the line, or of the paragraph's lines with spaces between them.
    """

    number: int
    text: str


def single_lines(blocks: Iterable[list[str]]) -> Iterator[list[Unit]]:
    """Each line as a unit, in the blocks in which they arrive."""
    first = 1
    for block in blocks:
        yield [Unit(number, line) for number, line in enumerate(block, start=first)]
        first += len(block)


def paragraphs(blocks: Iterable[list[str]]) -> Iterator[list[Unit]]:
    """Lines that follow each other without a blank one as one unit; one with nothing to see in it stays blank."""
    lines: list[str] = []
    number = 0
    for block in blocks:
        units = []
        for line in block:
            number += 1
            if text := normalize(line):
                lines.append(text)
                continue
            if lines:
                units.append(Unit(number - len(lines), " ".join(lines)))
                lines = []
            units.append(Unit(number, ""))
        if units:
            yield units
    if lines:
        yield [Unit(number - len(lines) + 1, " ".join(lines))]
