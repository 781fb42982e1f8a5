"""Beam search under required sequences: places in the beam are shared out by how much is still missing."""

import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from gnmt.search.constraints import Progress

# A way to go on: log-probability of the hypothesis, its parent, the new token.
Step = tuple[float, int, int]


def spread(steps: Sequence[Step], progress: Sequence[Progress], beam_size: int) -> list[Step]:
    """The steps of a sentence with required sequences that are to be kept, by log-probability.

    Hypotheses that have written more of what is required are less probable as a rule, and would never survive among
    the others; so each degree of completion gets an equal share of the beam (Post and Vilar 2018, section 4).

    Args:
        steps: unfinished ways to go on; one that comes twice counts once.
        progress: of each parent.
        beam_size: steps to keep.
    """
    banks: dict[int, list[Step]] = defaultdict(list)
    unique = {step[1:]: step for step in steps}
    for step in sorted(unique.values(), reverse=True):
        banks[progress[step[1]].after(step[2]).missing].append(step)
    rounds = itertools.zip_longest(*(banks[missing] for missing in sorted(banks)))
    chosen = [step for each in rounds for step in each if step is not None][:beam_size]
    return sorted(chosen, reverse=True)


def forced_steps(progress: Sequence[Progress], log_probs: np.ndarray, of_token: Tensor) -> list[Step]:
    """The ways to go on that bring a required sequence forward, however improbable.

    Args:
        progress: of each hypothesis.
        log_probs: (K,) of the hypotheses so far.
        of_token: (K, V) log-probabilities of the next token.
    """
    return [
        (float(log_probs[k]) + float(of_token[k, token]), k, token)
        for k, each in enumerate(progress)
        if log_probs[k] > -float("inf")
        for token in each.next_tokens()
    ]
