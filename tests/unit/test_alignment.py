"""Links between words, from attention on pieces."""

import numpy as np

from gnmt.alignment import align_words, pharaoh

# The | li ght | is | on .   and   Das | Licht | brenn t .
SOURCE, TARGET = np.array([0, 1, 1, 2, 3, 3]), np.array([0, 1, 2, 2, 2])


def test_each_target_word_is_linked_to_the_source_word_that_it_attended_most():
    attention = np.zeros((6, 7))
    attention[0, 0] = attention[1, 2] = attention[4, 5] = 1.0
    attention[1, 0] = 1.1  # less than the sum over the two pieces of the other word
    attention[1, 1] = 0.2
    attention[2, 3] = attention[3, 4] = 0.4
    attention[:, 6] = 5.0  # eos of the source is no word
    attention[5, 0] = 9.0  # eos of the target is none either
    assert align_words(SOURCE, TARGET, attention) == [(0, 0), (1, 1), (3, 2)]
    assert align_words(SOURCE, TARGET[:0], attention[5:]) == []
    assert align_words(SOURCE[:0], TARGET, attention) == []


def test_pharaohs_format():
    assert pharaoh([(2, 0), (0, 1), (0, 0)]) == "0-0 0-1 2-0"
    assert pharaoh([]) == ""
