"""From attention on pieces to links between words."""

from collections.abc import Sequence

import numpy as np


def align_words(source_words: np.ndarray, target_words: np.ndarray, attention: np.ndarray) -> list[tuple[int, int]]:
    """The source word that each target word attended most, as (source word, target word) pairs counted from 0.

    Args:
        source_words: (S',) the word that each source piece belongs to, see `Tokenizer.word_numbers`.
        target_words: (T',) the same for the target.
        attention: (T, S) weights; columns and rows behind the pieces (those of eos) are left out.

    Returns:
        one pair for each target word; none if a side has no words.
    """
    if not len(source_words) or not len(target_words):
        return []
    of_words = np.zeros((target_words[-1] + 1, source_words[-1] + 1))
    pieces = attention[: len(target_words), : len(source_words)]
    np.add.at(of_words, (target_words[:, None], source_words[None, :]), pieces)
    return [(int(row.argmax()), j) for j, row in enumerate(of_words)]


def pharaoh(pairs: Sequence[tuple[int, int]]) -> str:
    """`0-0 1-2`: source word, target word, by source word."""
    return " ".join(f"{i}-{j}" for i, j in sorted(pairs))
