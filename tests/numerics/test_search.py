"""Beam search over hand-written tables of probabilities, against exhaustive search."""

import itertools
import math
from typing import NamedTuple

import numpy as np
import pytest
import torch

from gnmt.config import SearchConfig
from gnmt.search.beam import beam_search
from gnmt.search.scores import coverage_penalty, length_penalty

BOS, EOS = 0, 1
SOURCE_LENGTH = 3


class Memory(NamedTuple):
    sentence: torch.Tensor
    mask: torch.Tensor

    def select(self, index):
        return Memory(self.sentence[index], self.mask[index])

    def append(self, other):
        return Memory(torch.cat([self.sentence, other.sentence]), torch.cat([self.mask, other.mask]))


class State(NamedTuple):
    prefixes: list

    def select(self, index):
        return State([self.prefixes[i] for i in index.tolist()])

    def append(self, other):
        return State(self.prefixes + other.prefixes)


class TableModel:
    """Draws each next-token distribution and attention from a generator seeded by sentence and prefix."""

    def __init__(self, vocab_size, eos_bias=0.0):
        self.vocab_size, self.eos_bias = vocab_size, eos_bias

    def table(self, sentence, prefix):
        seed = hash((sentence, prefix)) % (1 << 31)
        generator = torch.Generator().manual_seed(seed)
        logits = 2.0 * torch.randn(self.vocab_size, generator=generator, dtype=torch.float64)
        logits[BOS] = -math.inf
        logits[EOS] += self.eos_bias
        attention = torch.rand(SOURCE_LENGTH, generator=generator, dtype=torch.float64).softmax(0)
        return logits.log_softmax(0), attention

    def encode(self, source, lengths):
        return Memory(source[0], torch.arange(source.shape[0]) < lengths[:, None])

    def start(self, memory, beam_size):
        return State([()] * (len(memory.mask) * beam_size))

    def step(self, tokens, state, memory):
        beam = tokens.shape[1]
        prefixes = [(*p, t) for p, t in zip(state.prefixes, tokens.flatten().tolist(), strict=True)]
        rows = [self.table(int(memory.sentence[i // beam]), p) for i, p in enumerate(prefixes)]
        log_probs, attention = (torch.stack(part).view(*tokens.shape, -1) for part in zip(*rows, strict=True))
        return log_probs, State(prefixes), attention


def exhaustive(model, sentence, config, limit):
    """All complete sequences of at most `limit` tokens, scored by the paper's formula: (score, log_prob, tokens)."""
    found = []
    ordinary = range(2, model.vocab_size)
    for size in range(limit):
        for tokens in itertools.product(ordinary, repeat=size):
            log_prob, coverage, prefix = 0.0, [0.0] * SOURCE_LENGTH, (BOS,)
            for token in (*tokens, EOS):
                log_probs, attention = model.table(sentence, prefix)
                log_prob += float(log_probs[token])
                coverage = [c + float(a) for c, a in zip(coverage, attention, strict=True)]
                prefix = (*prefix, token)
            score = log_prob / ((5 + size + 1) / 6) ** config.length_penalty
            score += config.coverage_penalty * sum(math.log(min(c, 1.0)) for c in coverage)
            found.append((score, log_prob, tokens))
    return sorted(found, reverse=True)


def search(model, sentences, config, lengths=None, **options):
    source = torch.tensor(sentences).repeat(SOURCE_LENGTH, 1)
    lengths = torch.tensor(lengths or [SOURCE_LENGTH] * len(sentences))
    return beam_search(model, source, lengths, config, bos_id=BOS, eos_id=EOS, **options)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("beta", [0.0, 0.3])
def test_wide_beam_equals_exhaustive_search(monkeypatch, alpha, beta):
    monkeypatch.setattr("gnmt.search.hypotheses.EXTRA_LENGTH", 1)
    # 3 source tokens * 1.0 + 1 = at most 4 tokens; 3 + 9 + 27 prefixes fit into the beam. The eos bias makes
    # hypotheses that reach the limit unfinished rank below the complete ones, which is all that is enumerated.
    config = SearchConfig(
        beam_size=100, num_hypotheses=12, length_penalty=alpha, coverage_penalty=beta, max_length_factor=1.0
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

    ((best,),) = search(Chain(4), [0], SearchConfig(beam_size=2, length_penalty=1.0))
    assert best.tokens == (2,) * 8


def test_penalties_follow_the_paper():
    assert float(length_penalty(7, 0.2)) == pytest.approx(((5 + 7) / 6) ** 0.2)
    coverage = np.array([[0.5, 2.0, 0.25, 0.1]])
    mask = np.array([[True, True, True, False]])
    assert coverage_penalty(coverage, mask, 0.3).item() == pytest.approx(0.3 * (math.log(0.5) + math.log(0.25)))
