"""From attention on pieces to links between words."""

from collections.abc import Sequence

import numpy as np

_WORD_START = "\u2581"


def word_numbers(pieces: Sequence[str]) -> np.ndarray:
    """The word, counted from 0, that each piece belongs to: a word begins where SentencePiece marks a space."""
    starts = [piece.startswith(_WORD_START) for piece in pieces]
    return np.maximum(np.cumsum(starts) - bool(starts and starts[0]), 0) if starts else np.zeros(0, dtype=int)


def align_words(
    source_pieces: Sequence[str], target_pieces: Sequence[str], attention: np.ndarray
) -> list[tuple[int, int]]:
    """The source word that each target word attended most, as (source word, target word) pairs counted from 0.

    Args:
        source_pieces: without special tokens.
        target_pieces: the same.
        attention: (T, S) weights; columns and rows behind the pieces (those of eos) are left out.

    Returns:
        one pair for each target word; none if a side has no pieces.
    """
    if not source_pieces or not target_pieces:
        return []
    source, target = word_numbers(source_pieces), word_numbers(target_pieces)
    of_words = np.zeros((target[-1] + 1, source[-1] + 1))
    np.add.at(of_words, (target[:, None], source[None, :]), attention[: len(target), : len(source)])
    return [(int(row.argmax()), j) for j, row in enumerate(of_words)]


def pharaoh(pairs: Sequence[tuple[int, int]]) -> str:
    """`0-0 1-2`: source word, target word, by source word."""
    return " ".join(f"{i}-{j}" for i, j in sorted(pairs))
