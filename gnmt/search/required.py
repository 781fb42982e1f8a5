"""Beam search under required sequences: places in the beam are shared out by how much is still missing."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from torch import Tensor

from gnmt.search.constraints import Progress

# A way to go on: log-probability of the hypothesis, its parent, the new token.
Way = tuple[float, int, int]


def ways_with_requirements(
    found: Iterable[Way], progress: Sequence[Progress], log_probs: np.ndarray, of_token: Tensor, eos_id: int
) -> list[Way]:
    """The candidates of a sentence with required sequences: those that end, then those that go on.

    Candidates are the best of all hypotheses, the best of each, and those that bring a required sequence forward.
    Hypotheses that have written more of what is required are less probable as a rule and would never survive among the
    others, so each degree of completion gets an equal share of the beam (Post and Vilar 2018, sections 3 and 4).

    Args:
        found: the best ways of all hypotheses.
        progress: of each hypothesis.
        log_probs: (K,) of the hypotheses so far.
        of_token: (K, V) log-probabilities of the next token; minus infinity for eos where something is missing
            that can come next.
        eos_id: the token that ends a hypothesis.
    """
    ways = {way[1:]: way for way in found}
    # Two of each hypothesis, because one of them may be eos.
    values, tokens = (each.tolist() for each in of_token.topk(2, dim=1))
    for k in np.flatnonzero(np.isfinite(log_probs)).tolist():
        steps = dict(zip(tokens[k], values[k], strict=True))
        steps |= {token: float(of_token[k, token]) for token in progress[k].next_tokens()}
        ways |= {(k, token): (float(log_probs[k]) + step, k, token) for token, step in steps.items()}
    possible = [way for way in ways.values() if way[0] > -np.inf]
    ends = [way for way in _spread(possible, progress, len(log_probs)) if way[2] == eos_id]
    return ends + _spread([way for way in possible if way[2] != eos_id], progress, len(log_probs))


def _spread(ways: Iterable[Way], progress: Sequence[Progress], beam_size: int) -> list[Way]:
    """As many ways as the beam holds, by turns from each degree of completion; the most probable first."""
    banks: dict[int, list[Way]] = defaultdict(list)
    for way in sorted(ways, reverse=True):
        banks[progress[way[1]].after(way[2]).missing].append(way)
    rounds = itertools.zip_longest(*(banks[missing] for missing in sorted(banks)))
    chosen = [way for each in rounds for way in each if way is not None][:beam_size]
    return sorted(chosen, reverse=True)
