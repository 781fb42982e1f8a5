"""Demands on a translation: prefixes, forbidden and required sequences, against exhaustive search."""

import math
import random
import time

import numpy as np
import pytest
import torch
from tables import BOS, EOS, SOURCE_LENGTH, TableModel, exhaustive, search

from gnmt.config import SearchConfig
from gnmt.errors import ConfigError
from gnmt.search.bans import Bans
from gnmt.search.constraints import Constraints, ForbiddenSequences, Progress, WordPieces, repeating
from gnmt.search.hypotheses import Beams, Request, Sentence

# At most 3 * 1.0 + 1 tokens, so that all sequences can be enumerated and a beam of 100 holds every prefix.
EXHAUSTIVE = SearchConfig(beam_size=100, num_hypotheses=12, max_length_factor=1.0, stop_margin=math.inf)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("gnmt.search.hypotheses.EXTRA_LENGTH", 1)
    return TableModel(vocab_size=5, eos_bias=3.0)


def complete(hypotheses):
    return [h for h in hypotheses if h.is_complete]


def contains(tokens, sequence):
    return any(tokens[i : i + len(sequence)] == sequence for i in range(len(tokens) - len(sequence) + 1))


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
        (found,) = search(
            short, [sentence], EXHAUSTIVE, constraints=[Constraints(forbidden=(ForbiddenSequences(forbidden),))]
        )
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
    assert begun.after(5) == Progress(((6,),), at_end=True)
    assert not begun.after(5).after(7).at_end
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


class Fluent(TableModel):
    """Prefers 2 3 4 5 6 and the end; token 9 is ten nats down anywhere, and what follows it is as before."""

    def table(self, sentence, prefix):
        ordinary = [token for token in prefix[1:] if token != 9]
        scores = torch.full((60,), -12.0, dtype=torch.float64)
        scores[9] = -10.0
        scores[EOS if len(ordinary) == 5 else 2 + len(ordinary)] = 0.0
        scores[BOS] = -math.inf
        return scores.log_softmax(0), torch.full((SOURCE_LENGTH,), 1 / SOURCE_LENGTH)


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"token_pruning": 3.0},
        {"token_pruning": 0.0, "hypothesis_pruning": 0.0},
        {"no_repeat_ngram_size": 1},
        {"stop_margin": 0.0},
        {"beam_size": 1},
    ],
    ids=str,
)
def test_an_improbable_word_is_written_without_ruining_the_rest(limits):
    config = SearchConfig(**{"beam_size": 5, "coverage_penalty": 0.0, **limits})
    (found,) = search(Fluent(60), [0], config, constraints=[Constraints(required=((9,),))])
    assert found[0].is_complete
    assert sorted(found[0].tokens) == [2, 3, 4, 5, 6, 9]
    (found,) = search(Fluent(60), [0], config, constraints=[Constraints(required=((9, 9), (9,)))])
    assert found[0].is_complete
    assert sorted(found[0].tokens) == [2, 3, 4, 5, 6, 9, 9, 9]


@pytest.mark.parametrize("limits", [{"token_pruning": 3.0}, {"token_pruning": 0.0, "beam_size": 1}], ids=str)
def test_a_required_token_is_not_pruned_where_others_can_always_go_on(limits):
    class Babbling(TableModel):
        """Goes on with token 2 as long as it must not end."""

        def table(self, sentence, prefix):
            scores = torch.full((12,), -10.0, dtype=torch.float64)
            scores[EOS], scores[2] = 0.0, -1.0
            return scores.log_softmax(0), torch.full((SOURCE_LENGTH,), 1 / SOURCE_LENGTH)

    config = SearchConfig(coverage_penalty=0.0, **limits)
    (found,) = search(Babbling(12), [0], config, constraints=[Constraints(required=((9, 8),))])
    assert found[0].is_complete
    assert contains(found[0].tokens, (9, 8))


@pytest.mark.parametrize("beam_size", [1, 3, 5])
def test_what_cannot_be_met_does_not_keep_a_translation_from_ending(beam_size):
    """The impossible sequence is left out, the possible one is not."""
    config = SearchConfig(beam_size=beam_size, coverage_penalty=0.0)
    forbidden = (ForbiddenSequences([(8,), (3, 7)]),)
    # Greedy search cannot turn back when it has written 3, and goes on as the model does.
    for impossible in ((8, 2), (3, 7)) if beam_size > 1 else ((8, 2),):
        demands = Constraints(required=(impossible,), forbidden=forbidden)
        (found,) = search(Fluent(60), [0], config, constraints=[demands])
        assert found[0].is_complete
        assert not contains(found[0].tokens, impossible)
    demands = Constraints(required=((8,), (9,)), forbidden=forbidden)
    (found,) = search(Fluent(60), [0], config, constraints=[demands])
    assert found[0].is_complete
    assert 9 in found[0].tokens


def test_a_required_sequence_may_begin_in_the_prefix_but_not_end_there():
    assert Progress.behind((7, 4), ((4, 5), (6,))) == Progress(((4, 5), (6,)), (4,))
    assert Progress.behind((), ((4, 5),)) == Progress(((4, 5),))
    assert Progress.behind((6, 6), ((6,),)) == Progress(((6,),))
    config = SearchConfig(beam_size=5, coverage_penalty=0.0)
    for prefix, expected in (((2, 9), (2, 9, 9)), ((9, 9, 2), (9, 9, 2, 9, 9))):
        demands = Constraints(prefix=prefix, required=((9, 9),))
        (found,) = search(Fluent(60), [0], config, constraints=[demands])
        assert found[0].is_complete
        assert found[0].tokens[: len(prefix)] == prefix
        assert [t for t in found[0].tokens if t == 9] == [t for t in expected if t == 9]


def test_banned_tokens():
    forbidden = ForbiddenSequences([(8, 7, 3), (9,), (7, 7)])
    assert forbidden.always.tolist() == [9]
    assert forbidden.after([7, 8, 7]) == {3, 7}
    assert forbidden.after([]) == set()
    assert ForbiddenSequences([(1, 2, 3)]).after([]) == set()
    assert repeating([7, 8, 9, 7, 8], 3) == {9}
    assert repeating([7, 8, 7], 1) == {7, 8}
    assert repeating([], 2) == set()


@pytest.mark.parametrize("demands", [Constraints(prefix=(3, 2)), Constraints(required=((3, 2),))])
def test_words_that_are_demanded_are_not_continued(short, demands):
    """Token 2 may end a word; 3 and 4 go on with one."""
    words = WordPieces(ending={2}, continuing=np.array([3, 4]))
    for sentence in range(4):
        (free,) = search(short, [sentence], EXHAUSTIVE, constraints=[demands])
        (found,) = search(short, [sentence], EXHAUSTIVE, constraints=[demands._replace(words=words)])
        assert any(contains(h.tokens, (3, 2, 3)) or contains(h.tokens, (3, 2, 4)) for h in free)
        whole = [h.tokens.index(3) for h in found if contains(h.tokens, (3, 2))]
        assert whole
        for hypothesis in found:
            end = next(i for i in range(len(hypothesis.tokens)) if hypothesis.tokens[i : i + 2] == (3, 2)) + 2
            assert hypothesis.tokens[end : end + 1] in ((), (2,))


def test_half_a_vocabulary_is_banned_at_once_in_many_hypotheses():
    words = WordPieces(ending={400}, continuing=np.arange(1000, 17_000))
    demands = Constraints((400,), ((500, 501),), (ForbiddenSequences([(7,), (400, 8)]),), words)
    config = SearchConfig(beam_size=5)
    sentences = [Sentence.start(Request(i, demands), 3, config) for i in range(64)]
    beams = Beams.start(sentences, config, BOS)
    beams.log_probs[:], beams.lengths[:], beams.history = -1.0, 1, np.full((64, 5, 1), 400)
    log_probs = torch.zeros(64, 5, 32_000)
    start = time.perf_counter()
    Bans(0, EOS).apply(log_probs, sentences, beams, np.arange(64) < 63)
    assert time.perf_counter() - start < 1
    banned = {EOS, 7, 8, *range(1000, 17_000)}
    expected = torch.zeros(32_000).index_fill(0, torch.tensor(sorted(banned)), -torch.inf)
    assert (log_probs[:63] == expected).all()
    assert (log_probs[63] == 0).all()


def test_a_prefix_may_hold_what_is_forbidden_elsewhere(short):
    demands = Constraints(prefix=(3, 2, 3), forbidden=(ForbiddenSequences([(3, 2)]),))
    (found,) = search(short, [0], EXHAUSTIVE, constraints=[demands])
    assert all(h.tokens[:3] == (3, 2, 3) for h in found)


def test_what_cannot_be_done_together_is_refused(short):
    config = SearchConfig(temperature=1.0)
    with pytest.raises(ConfigError, match="temperature"):
        search(short, [0], config, constraints=[Constraints(required=((2,),))])
    (found,) = search(short, [0], config, constraints=[Constraints(prefix=(3, 2))])
    assert all(h.tokens[:2] == (3, 2) for h in found)
