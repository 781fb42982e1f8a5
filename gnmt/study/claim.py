"""What a claim is, and what can be found about it."""

from collections.abc import Callable
from typing import NamedTuple

from gnmt.study.analysis import Analysis, Mean


class Finding(NamedTuple):
    """What was measured about a claim for one cell.

    Attributes:
        measured: in words and numbers.
        holds: None if the measurements do not decide it.
    """

    measured: str
    holds: bool | None


class Claim(NamedTuple):
    """A claim of one of the two texts.

    Attributes:
        text: what is claimed, in our words.
        rule: when it counts as holding, and when as undecided if that is not plain.
        examine: gives the finding for a cell.
    """

    text: str
    rule: str
    examine: Callable[[Analysis, str], Finding]


def losses(analysis: Analysis, cell: str, variant: str) -> dict[int, Mean]:
    """Final validation loss by depth."""
    return {depth: analysis.loss(analysis.stack(cell, variant, depth)) for depth in analysis.config.depths}


def listed(by_depth: dict[int, Mean]) -> str:
    """Losses by depth in one line."""
    return ", ".join(f"{depth}: {loss}" for depth, loss in by_depth.items())
