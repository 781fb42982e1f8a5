"""What callers can ask of search: pruning, demands, sampling, attention, ensembles, batches that are filled up."""

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
import torch
from tables import BOS, EOS, SOURCE_LENGTH, TableModel, exhaustive, search

from gnmt.config import SearchConfig
from gnmt.errors import ConfigError
from gnmt.inference.ensemble import Ensemble
from gnmt.search.batch import Search
from gnmt.search.candidates import best_candidates
from gnmt.search.constraints import Constraints, Progress, banned_tokens, endings_of
from gnmt.search.hypotheses import Request

# At most 3 * 1.0 + 1 tokens, so that all sequences can be enumerated and a beam of 100 holds every prefix.
EXHAUSTIVE = SearchConfig(beam_size=100, num_hypotheses=12, max_length_factor=1.0)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("gnmt.search.hypotheses.EXTRA_LENGTH", 1)
    return TableModel(vocab_size=5, eos_bias=3.0)


def complete(hypotheses):
    return [h for h in hypotheses if h.is_complete]


def contains(tokens, sequence):
    return any(tokens[i : i + len(sequence)] == sequence for i in range(len(tokens) - len(sequence) + 1))


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


@pytest.mark.parametrize("sentence", range(4))
def test_a_prefix_restricts_the_search_and_nothing_else(short, sentence):
    expected = [e for e in exhaustive(short, sentence, EXHAUSTIVE, limit=4) if e[2][:2] == (3, 2)]
    (found,) = search(short, [sentence], EXHAUSTIVE, constraints=[Constraints(prefix=(3, 2))])
    found = complete(found)
    assert [h.tokens for h in found[:3]] == [e[2] for e in expected[:3]]
    assert [h.score for h in found[:3]] == pytest.approx([e[0] for e in expected[:3]])


@pytest.mark.parametrize("forbidden", [((2,),), ((3, 2), (4, 4)), ((2, 3, 4),)])
def test_forbidden_sequences_restrict_the_search_and_nothing_else(short, forbidden):
    for sentence in range(4):
        allowed = [
            e for e in exhaustive(short, sentence, EXHAUSTIVE, limit=4) if not any(contains(e[2], f) for f in forbidden)
        ]
        (found,) = search(short, [sentence], EXHAUSTIVE, constraints=[Constraints(forbidden=forbidden)])
        assert not any(contains(h.tokens, f) for h in found for f in forbidden)
        assert [h.tokens for h in complete(found)][:5] == [e[2] for e in allowed[:5]]


@pytest.mark.parametrize("required", [((4,),), ((3, 2),), ((2,), (4,))])
def test_required_sequences_are_in_the_best_that_has_them(required):
    model = TableModel(vocab_size=5, eos_bias=1.0)
    for sentence in range(6):
        config = SearchConfig(beam_size=8, num_hypotheses=1)
        (found,) = search(model, [sentence], config, constraints=[Constraints(required=required)])
        assert found[0].is_complete
        assert all(contains(found[0].tokens, sequence) for sequence in required)
        prefix, total = (BOS,), 0.0
        for token in (*found[0].tokens, EOS):
            total += float(model.table(sentence, prefix)[0][token])
            prefix = (*prefix, token)
        assert found[0].log_prob == pytest.approx(total)


def test_a_wide_beam_finds_the_best_that_has_what_is_required(short):
    for sentence in range(4):
        expected = [e for e in exhaustive(short, sentence, EXHAUSTIVE, limit=4) if contains(e[2], (4, 3))]
        (found,) = search(short, [sentence], EXHAUSTIVE, constraints=[Constraints(required=((4, 3),))])
        assert complete(found)[0].tokens == expected[0][2]


def test_progress_with_required_sequences():
    progress = Progress(((4, 5), (6,)))
    assert (progress.missing, progress.next_tokens()) == (3, {4, 6})
    begun = progress.after(4)
    assert (begun.missing, begun.next_tokens()) == (2, {5, 6})
    assert begun.after(5) == Progress(((6,),))
    assert begun.after(9).missing == 3  # broken off, to be begun anew
    assert begun.after(6).missing == 2  # broken off, and the other one written
    assert begun.after(4).missing == 2  # begun anew at once


def fits(tokens, sequences):
    """Whether the sequences stand in the tokens without overlap, by brute force."""
    if not sequences:
        return True
    return any(
        tokens[i : i + len(s)] == s and fits(tokens[i + len(s) :], [*sequences[:k], *sequences[k + 1 :]])
        for k, s in enumerate(sequences)
        for i in range(len(tokens) - len(s) + 1)
    )


def test_progress_sees_what_is_written_whatever_came_before():
    generator = random.Random(1)
    written = 0
    for _ in range(3000):
        sequences = tuple(tuple(generator.choices("ab", k=generator.randint(1, 3))) for _ in range(2))
        tokens = tuple(generator.choices("ab", k=9))
        progress = Progress(sequences)
        for token in tokens:
            assert progress.missing > 0 or not progress.open
            progress = progress.after(token)
        assert not progress.open or progress.missing > 0
        if not progress.open:
            assert fits(tokens, sequences)
            written += 1
        # A completed sequence takes the tokens that it needs first; what is not found at once may still fit otherwise.
        for sequence in sequences:
            alone = Progress((sequence,))
            for token in tokens:
                alone = alone.after(token)
            assert (not alone.open) == fits(tokens, [sequence])
    assert written > 1000


def test_an_improbable_word_is_written_without_ruining_the_rest():
    class Fluent(TableModel):
        """Prefers 2 3 4 5 6 and the end; token 9 is ten nats down anywhere, and what follows it is as before."""

        def table(self, sentence, prefix):
            ordinary = [token for token in prefix[1:] if token != 9]
            scores = torch.full((60,), -12.0, dtype=torch.float64)
            scores[9] = -10.0
            scores[EOS if len(ordinary) == 5 else 2 + len(ordinary)] = 0.0
            scores[BOS] = -math.inf
            return scores.log_softmax(0), torch.full((SOURCE_LENGTH,), 1 / SOURCE_LENGTH)

    config = SearchConfig(beam_size=5, coverage_penalty=0.0)
    (found,) = search(Fluent(60), [0], config, constraints=[Constraints(required=((9,),))])
    assert found[0].is_complete
    assert sorted(found[0].tokens) == [2, 3, 4, 5, 6, 9]
    (found,) = search(Fluent(60), [0], config, constraints=[Constraints(required=((9, 9), (8,)))])
    assert found[0].is_complete
    assert contains(found[0].tokens, (9, 9))
    assert 8 in found[0].tokens


def test_banned_tokens():
    assert banned_tokens([7, 8, 7], endings_of([(8, 7, 3), (9,), (7, 7)]), 0) == {3, 9, 7}
    assert banned_tokens([7, 8, 9, 7, 8], {}, 3) == {9}
    assert banned_tokens([7, 8, 7], {}, 1) == {7, 8}
    assert banned_tokens([], endings_of([(1, 2, 3)]), 2) == set()


def test_a_prefix_may_hold_what_is_forbidden_elsewhere(short):
    demands = Constraints(prefix=(3, 2, 3), forbidden=((3, 2),))
    (found,) = search(short, [0], EXHAUSTIVE, constraints=[demands])
    assert all(h.tokens[:3] == (3, 2, 3) for h in found)


def test_what_cannot_be_done_together_is_refused(short):
    config = SearchConfig(temperature=1.0)
    with pytest.raises(ConfigError, match="temperature"):
        search(short, [0], config, constraints=[Constraints(required=((2,),))])
    (found,) = search(short, [0], config, constraints=[Constraints(prefix=(3, 2))])
    assert all(h.tokens[:2] == (3, 2) for h in found)


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
