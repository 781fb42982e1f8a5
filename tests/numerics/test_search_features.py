"""What callers can ask of search: pruning, sampling, attention, ensembles, batches that are filled up."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from tables import BOS, EOS, SOURCE_LENGTH, TableModel, search

from gnmt.config import SearchConfig
from gnmt.inference.ensemble import Ensemble
from gnmt.search.batch import Search
from gnmt.search.candidates import best_candidates
from gnmt.search.hypotheses import Request


@pytest.mark.parametrize("count", [1, 7, 10, 20])
def test_the_best_of_blocks_are_the_best_of_all(count):
    log_probs = torch.randn(3, 4, 2048).log_softmax(-1)
    sums = np.where(np.arange(4) < 3, -np.arange(4) * 0.3, -np.inf) + np.zeros((3, 4))
    found = best_candidates(log_probs, sums, count)
    flat = (log_probs.double().numpy() + sums[..., None]).reshape(3, -1)
    expected = np.argsort(-flat, axis=1)[:, :count]
    assert (found.parents * 2048 + found.tokens == expected).all()
    np.testing.assert_allclose(found.log_probs, np.take_along_axis(flat, expected, 1), rtol=1e-5)


def test_impossible_candidates_name_no_token_of_the_padding():
    log_probs = torch.full((1, 1, 1024), -torch.inf)
    log_probs[0, 0, 7] = 0.0
    found = best_candidates(log_probs, np.zeros((1, 1)), 4)
    assert found.tokens[0].tolist() == [7, 0, 0, 0]
    assert np.isneginf(found.log_probs[0, 1:]).all()


def test_a_complete_hypothesis_comes_before_one_that_was_cut_off():
    model = TableModel(vocab_size=4, eos_bias=-2.0)
    for sentence in range(8):
        found = search(model, [sentence], SearchConfig(beam_size=4, num_hypotheses=4, length_penalty=1.0))[0]
        finished = [h.is_complete for h in found]
        assert finished == sorted(finished, reverse=True)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_comes_twice(size):
    model = TableModel(vocab_size=4, eos_bias=-1.0)
    config = SearchConfig(beam_size=3, num_hypotheses=3, no_repeat_ngram_size=size)
    repeats = 0
    for sentence in range(5):
        for h in search(model, [sentence], config)[0]:
            ngrams = list(itertools.pairwise(h.tokens)) if size == 2 else [h.tokens[i : i + size] for i in range(50)]
            ngrams = [n for n in ngrams if len(n) == size]
            assert len(set(ngrams)) == len(ngrams)
        free = search(model, [sentence], SearchConfig(beam_size=3))[0][0].tokens
        repeats += len(free) > len(set(free))
    assert repeats


def test_pruning_that_drops_nothing_changes_nothing_and_0_leaves_the_best_path():
    model, sentences = TableModel(vocab_size=12, eos_bias=1.0), list(range(8))
    plain = search(model, sentences, SearchConfig(beam_size=4))
    assert search(model, sentences, SearchConfig(beam_size=4, token_pruning=99.0, hypothesis_pruning=99.0)) == plain
    greedy = search(model, sentences, SearchConfig(beam_size=1))
    for found, (best, *_) in zip(search(model, sentences, SearchConfig(beam_size=4, token_pruning=0.0)), greedy):  # noqa: B905
        assert [h.tokens for h in found] == [best.tokens]


def test_pruned_tokens_are_those_too_far_below_their_hypothesis_best():
    model, width = TableModel(vocab_size=8, eos_bias=1.0), 1.0
    config = SearchConfig(beam_size=30, num_hypotheses=30, token_pruning=width)
    for sentence in range(6):
        for h in search(model, [sentence], config)[0]:
            prefix = (BOS,)
            for token in (*h.tokens, EOS) if h.is_complete else h.tokens:
                row = model.table(sentence, prefix)[0]
                assert float(row[token]) >= float(row.max()) - width - 1e-6
                prefix = (*prefix, token)


def test_hypothesis_pruning_gives_up_what_is_far_below_the_best_finished():
    model, sentences = TableModel(vocab_size=12, eos_bias=1.0), list(range(8))
    wide = SearchConfig(beam_size=6, num_hypotheses=6)
    narrow = SearchConfig(beam_size=6, num_hypotheses=6, hypothesis_pruning=0.5)
    fewer = 0
    for found, pruned in zip(search(model, sentences, wide), search(model, sentences, narrow), strict=True):
        assert pruned[0].score >= pruned[-1].score
        fewer += len(pruned) < len(found)
    assert fewer


def samples(model, number, **options):
    config = SearchConfig(beam_size=200, num_hypotheses=200, max_length_factor=1.0, **options)
    found = Search(model, config, bos_id=BOS, eos_id=EOS)
    source = torch.full((SOURCE_LENGTH, 1), 3)
    found.admit(model.encode(source, torch.tensor([SOURCE_LENGTH])), [Request(number)])
    while found.num_active:
        if done := found.advance():
            return done[0][1]
    raise AssertionError


class Coin(TableModel):
    """0.6, 0.3, 0.1 for tokens 2, 3, 4; then the end."""

    def table(self, sentence, prefix):
        p = torch.zeros(5, dtype=torch.float64)
        if len(prefix) == 1:
            p[2:5] = torch.tensor([0.6, 0.3, 0.1])
        else:
            p[EOS] = 1.0
        return p.log(), torch.full((SOURCE_LENGTH,), 1 / SOURCE_LENGTH)


def drawn(**options):
    """Shares of the three tokens among many draws of one token each."""
    counts = Counter()
    for number in range(40):
        search_ = Search(Coin(5), SearchConfig(beam_size=50, num_hypotheses=50, **options), bos_id=BOS, eos_id=EOS)
        search_.admit(Coin(5).encode(torch.full((3, 1), 3), torch.tensor([3])), [Request(number)])
        search_.advance()
        counts.update(search_._beams.tokens.ravel().tolist())
    return [counts[token] / sum(counts.values()) for token in (2, 3, 4)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"temperature": 1.0}, [0.6, 0.3, 0.1]),
        ({"temperature": 0.5}, [0.36 / 0.46, 0.09 / 0.46, 0.01 / 0.46]),
        ({"temperature": 1.0, "top_k": 2}, [2 / 3, 1 / 3, 0]),
        ({"temperature": 1.0, "top_p": 0.6}, [1, 0, 0]),
        ({"temperature": 1.0, "top_p": 0.7}, [2 / 3, 1 / 3, 0]),
        ({"temperature": 0.01}, [1, 0, 0]),
    ],
)
def test_samples_have_the_distribution_that_is_asked_for(options, expected):
    # 2,000 draws: three standard deviations are at most 0.033.
    assert drawn(**options) == pytest.approx(expected, abs=0.033)


def test_samples_depend_on_the_seed_and_the_sentences_number_alone():
    model = TableModel(vocab_size=12, eos_bias=0.5)
    first = samples(model, 7, temperature=1.0, seed=1)
    assert samples(model, 7, temperature=1.0, seed=1) == first
    assert samples(model, 8, temperature=1.0, seed=1) != first
    assert samples(model, 7, temperature=1.0, seed=2) != first
    assert first[0].score == pytest.approx(first[0].log_prob / ((6 + len(first[0].tokens)) / 6) ** 0.6)


def test_attention_is_traced_back_along_the_hypothesis():
    model = TableModel(vocab_size=9, eos_bias=1.0)
    config = SearchConfig(beam_size=4, num_hypotheses=4)
    found = search(model, [1, 5], config, [3, 2], keep_attention=True)
    for sentence, length, hypotheses in zip([1, 5], [3, 2], found, strict=True):
        for h in hypotheses:
            prefix, expected = (BOS,), []
            for token in (*h.tokens, EOS) if h.is_complete else h.tokens:
                expected.append(model.table(sentence, prefix)[1][:length].numpy())
                prefix = (*prefix, token)
            np.testing.assert_allclose(h.attention, np.stack(expected), rtol=1e-6)


def test_an_ensemble_averages_log_probabilities():
    class Other(TableModel):
        def table(self, sentence, prefix):
            return super().table(sentence + 100, prefix)

    class Mean(TableModel):
        def table(self, sentence, prefix):
            pairs = zip(members[0].table(sentence, prefix), members[1].table(sentence, prefix), strict=True)
            return tuple((a + b) / 2 for a, b in pairs)

    members = [TableModel(8, 1.0), Other(8, 1.0)]
    config = SearchConfig(beam_size=3, num_hypotheses=3, coverage_penalty=0.2)
    assert search(Ensemble(members), [2, 3], config) == search(Mean(8, 1.0), [2, 3], config)


def test_sentences_that_join_later_are_searched_as_if_alone():
    model = TableModel(vocab_size=12, eos_bias=0.5)
    config = SearchConfig(beam_size=3, num_hypotheses=2, coverage_penalty=0.2)
    batch = Search(model, config, bos_id=BOS, eos_id=EOS, keep_attention=True)
    waiting, found = list(range(9)), {}
    while waiting or batch.num_active:
        while waiting and batch.num_active < 3:
            number = waiting.pop()
            lengths = torch.tensor([1 + number % 3])
            source = torch.full((int(lengths), 1), number)
            batch.admit(Padded.of(model.encode(source, lengths)), [Request(number)])
        found.update(batch.advance())
        if batch.num_done > 1:
            batch.drop_done()
    for number, hypotheses in found.items():
        ((alone, *_),) = search(model, [number], config, [1 + number % 3])
        assert hypotheses[0].tokens == alone.tokens
        assert hypotheses[0].score == pytest.approx(alone.score)
    assert sorted(found) == list(range(9))
    assert not math.isinf(max(h[0].score for h in found.values()))


class Padded:
    """Widens a fake memory to the fake attention's width."""

    @staticmethod
    def of(memory):
        width = SOURCE_LENGTH - memory.mask.shape[1]
        return memory._replace(mask=torch.nn.functional.pad(memory.mask, (0, width)))
