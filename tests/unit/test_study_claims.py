"""Each rule of the study's claims, on made-up records of which the right verdict is known."""

import math
from types import SimpleNamespace

import pytest

from gnmt.config import CorpusConfig
from gnmt.study.analysis import Analysis
from gnmt.study.claims import CLAIMS
from gnmt.study.runner import cost_key
from gnmt.study.settings import StudyConfig

CONFIG = StudyConfig(CorpusConfig("train.{lang}"), CorpusConfig("validation.{lang}"))
PLATEAU = 5.7


def analysis(config=CONFIG, loss=None, factor=None, time_factor=None, trial=None, side=None, untrained=None, **single):
    """An analysis whose numbers follow from functions of the stack; what is left out is the same for all stacks."""
    loss = loss or (lambda stack: 4.0)
    factor = factor or (lambda stack: 0.5)
    trial = trial or (lambda stack, rate: 5.0 if rate == 0.004 else 5.1)
    time_factor = time_factor or (lambda stack: 0.5 if stack.cell == "rnn" else 0.8)
    records = {"unigram": {"validation_loss": PLATEAU}}
    for run in config.searches():
        records[run.key] = {"validation_loss": trial(run.stack, run.learning_rate)}
    rates = dict.fromkeys(config.stacks(), config.learning_rates)
    for run in config.finals(rates, config.seeds):
        depth = run.stack.depth
        norms = [factor(run.stack) ** (depth - layer) for layer in range(1, depth + 1)]
        spreads = [1.0 if run.stack.variant == "residual_norm" else float(layer) for layer in range(1, depth + 1)]
        probe = {
            "encoder_gradient": norms,
            "encoder_spread": spreads,
            "time_gradient": [time_factor(run.stack) ** lag for lag in range(8)],
        }
        logs = {f"encoder_{layer}": math.log(norms[layer - 1]) for layer in range(1, depth + 1)}
        records[run.key] = {
            "validation_loss": loss(run.stack) + 0.001 * run.seed,
            "start": probe,
            "end": probe,
            "clipped_share": 0.5,
            "diverged": False,
            "gradients": {"start": logs, "later": logs},
        }
    for run in config.sides(dict.fromkeys(config.stacks(), 0.004)):
        records[run.key] = {"validation_loss": side(run) if side else 4.0, "diverged": False, "clipped_share": 0.5}
    for key in config.untrained():
        base = (untrained or {}).get(key.split()[-1], 0.5)
        records[key] = {"encoder_gradient": [base ** (8 - layer) for layer in range(1, 9)]}
    for stack in config.stacks():
        records[cost_key(stack)] = {"milliseconds": 10.0 * stack.depth, "mebibytes": 5.0 * stack.depth, "parameters": 1}
    for cell in config.cells:
        records[f"independence {cell}"] = {"difference": single.get("difference", 1e-7)}
    return Analysis(config, SimpleNamespace(records=records))


def verdict(words, numbers, cell="lstm"):
    (claim,) = [claim for claim in CLAIMS if words in claim.text]
    return claim.examine(numbers, cell).holds


def by_depth(losses):
    """A loss for each depth of plain stacks, 4.0 for all others."""
    return lambda stack: losses[stack.depth] if stack.variant == "plain" and stack.width == 128 else 4.0


def by_variant(**losses):
    return lambda stack: losses[stack.variant]


def test_made_up_records_can_be_examined_for_every_claim_and_cell():
    numbers = analysis()
    for claim in CLAIMS:
        for cell in CONFIG.cells:
            assert claim.examine(numbers, cell).measured


RISING = {1: 4.0, 2: 3.5, 4: 3.4, 6: 3.4, 8: 3.8, 12: 4.5}
FALLING = {1: 4.0, 2: 3.5, 4: 3.4, 6: 3.3, 8: 3.2, 12: 3.0}
LATE = {1: 4.0, 2: 3.9, 4: 3.0, 6: 2.9, 8: 2.9, 12: 2.9}
FLAT = dict.fromkeys(RISING, 4.0)


@pytest.mark.parametrize(
    ("words", "losses", "expected"),
    [
        ("rarely help and often hurt", RISING, True),
        ("rarely help and often hurt", FALLING, False),
        ("rarely help and often hurt", FLAT, None),
        ("each further layer gains less", RISING, True),
        ("each further layer gains less", LATE, False),
        ("each further layer gains less", FLAT, None),
        ("wider shallow stack", RISING, None),
        ("wider shallow stack", {**FLAT, 8: 5.0}, True),
        ("wider shallow stack", {**FLAT, 8: 3.0}, False),
    ],
)
def test_losses_of_plain_stacks_decide(words, losses, expected):
    if words.startswith("wider") and losses is RISING:
        losses = {**RISING, 8: 4.0}
    assert verdict(words, analysis(loss=by_depth(losses))) is expected


@pytest.mark.parametrize(
    ("words", "losses", "expected"),
    [
        ("8 to 12 layers are practical", by_variant(plain=5.0, residual=4.0, residual_norm=4.0), True),
        ("8 to 12 layers are practical", by_variant(plain=4.0, residual=4.0, residual_norm=4.0), False),
        ("technique that helps with depth", by_variant(plain=5.0, residual=4.0, residual_norm=3.0), True),
        ("technique that helps with depth", by_variant(plain=5.0, residual=3.0, residual_norm=4.0), False),
        ("technique that helps with depth", by_variant(plain=5.0, residual=4.0, residual_norm=4.0), None),
    ],
)
def test_losses_of_variants_decide(words, losses, expected):
    assert verdict(words, analysis(loss=losses)) is expected


def test_residual_stacks_that_are_best_when_shallow_do_not_bear_out_their_depth():
    losses = lambda stack: 5.0 if stack.variant == "plain" else 4.0 if stack.depth >= 8 else 3.0  # noqa: E731
    assert verdict("8 to 12 layers are practical", analysis(loss=losses)) is False


@pytest.mark.parametrize(
    ("words", "plain", "residual", "expected"),
    [
        ("weakens the gradient", 0.5, 1.0, True),
        ("weakens the gradient", 1.1, 1.0, False),
        ("Lower layers of plain stacks", 0.5, 1.0, True),
        ("Lower layers of plain stacks", 0.9, 1.0, False),
        ("direct path", 0.5, 0.95, True),
        ("direct path", 0.5, 0.6, False),
        ("direct path", 0.95, 0.95, False),
        ("becomes the bottleneck", 0.5, 1.0, True),
        ("becomes the bottleneck", 0.95, 1.0, False),
        ("becomes the bottleneck", 0.8, 1.0, None),
    ],
)
def test_factors_per_layer_decide(words, plain, residual, expected):
    numbers = analysis(factor=lambda stack: plain if stack.variant == "plain" else residual)
    assert verdict(words, numbers) is expected


def test_a_constant_factor_is_recognised():
    assert verdict("k-th power", analysis()) is True


@pytest.mark.parametrize(
    ("lstm", "rnn", "expected"), [(0.8, 0.5, (True, True)), (0.5, 0.8, (False, True)), (1.0, 1.0, (False, False))]
)
def test_factors_per_time_step_decide(lstm, rnn, expected):
    numbers = analysis(time_factor=lambda stack: rnn if stack.cell == "rnn" else lstm)
    assert (verdict("Over time", numbers), verdict("Over time", numbers, "rnn")) == expected


def test_the_projection_must_carry_more_than_no_shortcut():
    assert verdict("learned projection", analysis(untrained={"none": 0.3, "project": 0.6})) is True
    assert verdict("learned projection", analysis(untrained={"none": 0.6, "project": 0.6})) is False


def test_attenuation_must_show_with_every_initialisation():
    assert verdict("weakens the gradient", analysis(untrained={"0.15": 1.0})) is False


def test_spread_and_independence_decide():
    assert verdict("steadies the distribution", analysis()) is True
    assert verdict("no batch statistics", analysis()) is True
    assert verdict("no batch statistics", analysis(difference=0.1)) is False


@pytest.mark.parametrize(
    ("norm_top", "residual_top", "best", "expected"),
    [(0.016, 0.008, 5.0, True), (0.008, 0.016, 5.0, False), (0.016, 0.016, 5.0, None), (0.064, 0.008, 5.6, None)],
)
def test_stable_rates_decide_unless_nothing_was_learned(norm_top, residual_top, best, expected):
    tops = {"plain": 0.004, "residual": residual_top, "residual_norm": norm_top}
    numbers = analysis(trial=lambda stack, rate: best if rate <= tops[stack.variant] else best + 1)
    assert verdict("higher learning rates", numbers) is expected


def test_a_trial_near_the_token_frequencies_is_not_stable():
    numbers = analysis(trial=lambda stack, rate: 5.4 if rate <= 0.004 else PLATEAU - 0.1)
    assert numbers.highest_stable_rate(CONFIG.stacks()[0]) == 0.004


def test_a_stable_rate_beyond_an_unstable_one_does_not_count():
    numbers = analysis(trial=lambda stack, rate: 6.0 if rate == 0.008 else 5.0)
    assert numbers.highest_stable_rate(CONFIG.stacks()[0]) == 0.004


def test_the_range_over_initialisations_decides():
    def side(run):
        return 4.0 + (run.stack.init_range if run.stack.variant == "residual" else 0.0)

    assert verdict("less sensitive to the initialisation", analysis(side=side)) is True
    assert verdict("less sensitive to the initialisation", analysis()) is None


def test_clipping_counts_if_its_absence_costs_something():
    assert verdict("clipping is essential", analysis()) is False
    assert verdict("clipping is essential", analysis(side=lambda run: 5.0 if run.clip_norm is None else 4.0)) is True


def test_cost_is_a_line():
    assert verdict("same time and memory", analysis()) is True


def test_the_better_candidate_is_taken_by_its_full_training():
    numbers = analysis(trial=lambda stack, rate: rate)  # the lowest two are candidates, equal in full
    assert set(numbers.best_rates.values()) <= set(CONFIG.learning_rates[:2])
