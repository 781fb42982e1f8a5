"""When a search ends: the stop margin, and the best hypothesis that is settled before the others are found."""

import itertools
import math

import pytest
import torch
from tables import BOS, EOS, TableModel, search

from gnmt.config import SearchConfig
from gnmt.search.batch import Search
from gnmt.search.constraints import Constraints
from gnmt.search.hypotheses import Request

SENTENCES = list(range(60))


def steps_and_best(model, sentence, config):
    """How many tokens a search decodes, and what it finds best."""
    found = Search(model, config, bos_id=BOS, eos_id=EOS)
    found.admit(model.encode(torch.full((3, 1), sentence), torch.tensor([3])), [Request(0)])
    for step in range(1, 1000):
        if done := found.advance():
            return step, done[0][1][0]
    raise AssertionError


@pytest.mark.parametrize("margin", [0.0, 0.3, 1.5, math.inf])
@pytest.mark.parametrize("eos_bias", [-0.5, 1.0])
@pytest.mark.parametrize("penalties", [{}, {"length_penalty": 1.0, "coverage_penalty": 0.0}])
def test_the_first_of_the_n_best_is_the_best_and_the_others_are_sorted(margin, eos_bias, penalties):
    model = TableModel(vocab_size=7, eos_bias=eos_bias)
    config = {"beam_size": 5, "stop_margin": margin, **penalties}
    one = search(model, SENTENCES, SearchConfig(num_hypotheses=1, **config))
    five = search(model, SENTENCES, SearchConfig(num_hypotheses=5, **config))
    for (best,), hypotheses in zip(one, five, strict=True):
        assert hypotheses[0] == best
        ranks = [(not h.is_complete, -h.score) for h in hypotheses]
        assert ranks == sorted(ranks)
        assert len({h.tokens for h in hypotheses}) == len(hypotheses)


def test_a_narrower_margin_ends_the_search_earlier_and_an_infinite_one_searches_on():
    model = TableModel(vocab_size=7, eos_bias=0.5)
    margins = (0.0, 0.3, 50.0, math.inf)
    steps = dict.fromkeys(margins, 0)
    found = {}
    for margin in margins:
        config = SearchConfig(beam_size=5, length_penalty=1.0, stop_margin=margin)
        for sentence in SENTENCES[:30]:
            count, found[margin, sentence] = steps_and_best(model, sentence, config)
            steps[margin] += count
    assert steps[0.0] < steps[0.3] < steps[math.inf] == steps[50.0]
    for sentence in SENTENCES[:30]:
        scores = [found[margin, sentence].score for margin in margins]
        assert scores == sorted(scores)


@pytest.mark.parametrize("margin", [0.0, 0.3, math.inf])
@pytest.mark.parametrize("number", [1, 5])
def test_a_search_that_ends_early_has_what_is_required(margin, number):
    model = TableModel(vocab_size=7, eos_bias=1.0)
    config = SearchConfig(beam_size=5, num_hypotheses=number, stop_margin=margin)
    demands = [Constraints(required=((4, 3),))] * len(SENTENCES)
    for hypotheses in search(model, SENTENCES, config, constraints=demands):
        assert hypotheses[0].is_complete
        assert (4, 3) in itertools.pairwise(hypotheses[0].tokens)


def test_the_first_of_the_n_best_has_what_is_required_and_is_the_best():
    model = TableModel(vocab_size=7, eos_bias=1.0)
    demands = [Constraints(required=((4, 3),))] * len(SENTENCES)
    one, five = (
        search(model, SENTENCES, SearchConfig(beam_size=5, num_hypotheses=n, stop_margin=0.3), constraints=demands)
        for n in (1, 5)
    )
    assert [found[0] for found in five] == [found[0] for found in one]
