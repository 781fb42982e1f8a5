"""Beam search over hand-written tables of probabilities, against exhaustive search."""

import math

import numpy as np
import pytest
import torch
from tables import BOS, EOS, SOURCE_LENGTH, TableModel, exhaustive, search

from gnmt.config import SearchConfig
from gnmt.search.scores import coverage_penalty, length_penalty


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_wide_beam_equals_exhaustive_search(monkeypatch, alpha, beta):
    monkeypatch.setattr("gnmt.search.hypotheses.EXTRA_LENGTH", 1)
    # 3 source tokens * 1.0 + 1 = at most 4 tokens; 3 + 9 + 27 prefixes fit into the beam. The eos bias makes
    # hypotheses that reach the limit unfinished rank below the complete ones, which is all that is enumerated.
    config = SearchConfig(
        beam_size=100,
        num_hypotheses=12,
        length_penalty=alpha,
        coverage_penalty=beta,
        max_length_factor=1.0,
        stop_margin=math.inf,
    )
    model = TableModel(vocab_size=5, eos_bias=3.0)
    for sentence in range(6):
        (found,) = search(model, [sentence], config)
        complete = [h for h in found if h.is_complete]
        expected = exhaustive(model, sentence, config, limit=4)[: len(complete)]
        assert len(complete) >= 5
        for hypothesis, (score, log_prob, tokens) in zip(complete, expected, strict=True):
            assert hypothesis.tokens == tokens
            assert hypothesis.score == pytest.approx(score, abs=1e-6)
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-6)


def test_beam_of_one_is_greedy():
    model = TableModel(vocab_size=8, eos_bias=1.0)
    for sentence in range(60):
        ((found,),) = search(model, [sentence], SearchConfig(beam_size=1, length_penalty=1.0))
        prefix, tokens = (BOS,), []
        for _ in range(2 * SOURCE_LENGTH + 10):
            token = int(model.table(sentence, prefix)[0].argmax())
            if token == EOS:
                break
            tokens.append(token)
            prefix = (*prefix, token)
        assert list(found.tokens) == tokens


def test_the_best_does_not_depend_on_how_many_are_asked_for():
    model = TableModel(vocab_size=12, eos_bias=1.0)
    sentences = list(range(10))
    one = search(model, sentences, SearchConfig(beam_size=4, num_hypotheses=1))
    four = search(model, sentences, SearchConfig(beam_size=4, num_hypotheses=4))
    assert [found[0] for found in one] == [found[0] for found in four]
    for found in four:
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({h.tokens for h in found}) == len(found)


def test_a_batch_equals_its_sentences_alone():
    model = TableModel(vocab_size=12)
    config = SearchConfig(beam_size=3, num_hypotheses=3, coverage_penalty=0.2)
    sentences, lengths = [4, 9, 2, 7], [3, 1, 2, 3]
    together = search(model, sentences, config, lengths)
    for sentence, length, expected in zip(sentences, lengths, together, strict=True):
        assert search(model, [sentence], config, [length]) == [expected]


def test_the_length_limit_is_each_sentences_own_and_is_reported():
    model = TableModel(vocab_size=6, eos_bias=-50.0)
    config = SearchConfig(beam_size=2, max_length_factor=1.0)
    found = search(model, [1, 2], config, [1, 3])
    assert [len(hypotheses[0].tokens) for hypotheses in found] == [11, 13]
    assert not any(hypotheses[0].is_complete for hypotheses in found)


def test_search_stops_only_when_nothing_better_can_appear():
    """A long hypothesis that wins by length normalisation must be found although a short one ends first."""

    class Chain(TableModel):
        def table(self, sentence, prefix):
            p = [0.0] * 4
            if len(prefix) == 1:
                p[EOS], p[2] = 0.45, 0.55
            elif len(prefix) < 9:
                p[2], p[EOS] = 0.95, 0.05
            else:
                p[EOS] = 1.0
            return torch.tensor(p, dtype=torch.float64).log(), torch.full((SOURCE_LENGTH,), 1 / SOURCE_LENGTH)

    ((best,),) = search(Chain(4), [0], SearchConfig(beam_size=2, length_penalty=1.0, stop_margin=math.inf))
    assert best.tokens == (2,) * 8


def test_penalties_follow_the_paper():
    assert float(length_penalty(7, 0.2)) == pytest.approx(((5 + 7) / 6) ** 0.2)
    coverage = np.array([[0.5, 2.0, 0.25, 0.1]])
    mask = np.array([[True, True, True, False]])
    assert coverage_penalty(coverage, mask, 0.3).item() == pytest.approx(0.3 * (math.log(0.5) + math.log(0.25)))
