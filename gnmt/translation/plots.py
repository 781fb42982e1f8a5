"""Heat maps of attention, with labels that are readable in any script."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font

# Inches of a piece's row or column, and how many of them have a label.
_PIECE, _MOST_LABELS = 0.3, 100


class AttentionPlots:
    """Draws into a folder.

    Fonts of this machine that have a label's characters are found as they are needed; a character that no font has is
    written as its code.

    Args:
        folder: made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._characters: dict[str, set[int]] = {}

    def draw(self, name: str, source: Sequence[str], target: Sequence[str], attention: np.ndarray) -> None:
        """Write FOLDER/NAME.png: target pieces (T) down, source pieces (S) across, weights (T, S).

        A picture does not grow beyond what can be handled: with more pieces they get smaller, and only some have a
        label.
        """
        families = self._families("".join([*source, *target]))
        size = (2 + _PIECE * min(len(source), _MOST_LABELS), 1.5 + _PIECE * min(len(target), _MOST_LABELS))
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        axes.imshow(attention[: len(target), : len(source)], cmap="Greys", vmin=0.0, vmax=1.0, aspect="auto")
        for axis, pieces, rotation in ((axes.xaxis, source, 90), (axes.yaxis, target, 0)):
            places = range(0, len(pieces), math.ceil(len(pieces) / _MOST_LABELS))
            labels = [self._label(pieces[i], families) for i in places]
            axis.set_ticks(places, labels, rotation=rotation, family=families, parse_math=False)
        axes.xaxis.tick_top()
        figure.savefig(self._folder / f"{name}.png", dpi=120)

    def _families(self, text: str) -> list[str]:
        """Fonts that together have as many of the characters as this machine can show, the standard one first."""
        missing = {ord(character) for character in text}
        families: list[str] = []
        standard = font_manager.FontProperties().get_name()
        fonts = sorted(font_manager.fontManager.ttflist, key=lambda font: (font.name != standard, font.name))
        for font in fonts:
            if not missing and families:
                break
            if font.name not in self._characters:
                self._characters[font.name] = set(FT2Font(font.fname).get_charmap())
            if missing & self._characters[font.name]:
                missing -= self._characters[font.name]
                families.append(font.name)
        return families

    def _label(self, piece: str, families: Sequence[str]) -> str:
        known = set().union(*(self._characters[name] for name in families))
        return "".join(c if ord(c) in known else f"U+{ord(c):04X}" for c in piece)
