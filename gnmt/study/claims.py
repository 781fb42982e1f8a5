"""The claims of the project's two founding texts, each with what the study measured and whether it holds here."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gnmt.study.analysis import Analysis, Mean
from gnmt.study.settings import VARIANTS

# A factor per layer within this distance of 1 counts as unchanged.
_TOLERANCE = 0.03
# A factor per time step from here on counts as the gradient being kept.
_KEPT = 0.9
# Depths that the texts call deep, and shallow enough for plain stacks.
_DEEP, _SHALLOW = 8, 6


class Finding(NamedTuple):
    """One claim's outcome for one cell, or for all."""

    measured: str
    holds: bool


class Claim(NamedTuple):
    """A claim, and how to decide it.

    Attributes:
        text: what is claimed, in our words.
        rule: when it counts as holding.
        examine: gives the finding for a cell.
    """

    text: str
    rule: str
    examine: Callable[[Analysis, str], Finding]


def _losses(analysis: Analysis, cell: str, variant: str) -> dict[int, Mean]:
    return {depth: analysis.loss(analysis.stack(cell, variant, depth)) for depth in analysis.config.depths}


def _best_depth(losses: dict[int, Mean]) -> int:
    return min(losses, key=lambda depth: losses[depth].value)


def _list(losses: dict[int, Mean]) -> str:
    return ", ".join(f"{depth}: {loss}" for depth, loss in losses.items())


def _plain_limit(analysis: Analysis, cell: str) -> Finding:
    losses = _losses(analysis, cell, "plain")
    shallow = min((loss for depth, loss in losses.items() if depth <= _SHALLOW), key=lambda loss: loss.value)
    deep = {depth: loss for depth, loss in losses.items() if depth > _SHALLOW}
    helps = [depth for depth, loss in deep.items() if loss.below(shallow)]
    hurts = [depth for depth, loss in deep.items() if shallow.below(loss)]
    measured = (
        f"loss by depth {_list(losses)}; deeper than {_SHALLOW} helps at {helps or 'none'}, hurts at {hurts or 'none'}"
    )
    return Finding(measured, not helps)


def _diminishing(analysis: Analysis, cell: str) -> Finding:
    losses = _losses(analysis, cell, "plain")
    pairs = list(zip(losses, list(losses)[1:], strict=False))
    gains = [(losses[a].value - losses[b].value) / (b - a) for a, b in pairs]
    measured = "gain per added layer " + ", ".join(
        f"{a} to {b}: {gain:+.3f}" for (a, b), gain in zip(pairs, gains, strict=True)
    )
    return Finding(measured, len(gains) > 1 and max(gains[1:]) < gains[0])


def _attenuation(analysis: Analysis, cell: str) -> Finding:
    start, end = _gammas(analysis, cell, "plain")
    others = ", ".join(f"+-{x:g}: {analysis.untrained(cell, f'{x:g}').factor:.2f}" for x in analysis.config.init_ranges)
    measured = (
        f"factor per layer {start:.2f} at the start, {end:.2f} at the end; at the start by initialisation {others}"
    )
    return Finding(measured, start < 1 - _TOLERANCE)


def _gammas(analysis: Analysis, cell: str, variant: str) -> tuple[float, float]:
    """At the greatest depth, at the start and the end of training (NaN if it diverged)."""
    stack = analysis.stack(cell, variant, max(analysis.config.depths))
    fits = [analysis.gamma(stack, when) for when in ("start", "end")]
    start, end = (fit.factor if fit else math.nan for fit in fits)
    return start, end


def _power_law(analysis: Analysis, cell: str) -> Finding:
    stack = analysis.stack(cell, "plain", max(analysis.config.depths))
    fit = analysis.gamma(stack, "start")
    assert fit is not None
    norms = analysis.layer_values(stack, "start", "encoder_gradient")
    measured = (
        f"lowest / highest layer {norms[0] / max(norms[-1], 1e-38):.2g}; a constant factor explains {fit.r_squared:.0%}"
    )
    return Finding(measured, fit.r_squared > 0.9)


def _shortcut_path(analysis: Analysis, cell: str) -> Finding:
    plain, residual = _gammas(analysis, cell, "plain")[0], _gammas(analysis, cell, "residual")[0]
    norms = analysis.layer_values(
        analysis.stack(cell, "residual", max(analysis.config.depths)), "start", "encoder_gradient"
    )
    ratio = norms[0] / norms[-1]
    measured = f"factor per layer {plain:.2f} without, {residual:.2f} with; lowest / highest layer with it {ratio:.2g}"
    return Finding(measured, residual > plain and ratio > 0.1)


def _residual_limit(analysis: Analysis, cell: str) -> Finding:
    """Deep residual stacks beat the plain ones, and the best residual depth is not a shallow one."""
    plain, best = _losses(analysis, cell, "plain"), {}
    for variant in ("residual", "residual_norm"):
        best[variant] = _losses(analysis, cell, variant)
    lowest = {variant: _best_depth(losses) for variant, losses in best.items()}
    deep = [depth for depth in plain if depth >= _DEEP]
    better = all(min(best[v][depth].value for v in best) < plain[depth].value for depth in deep)
    measured = "; ".join(f"{variant} {_list(losses)}, best at {lowest[variant]}" for variant, losses in best.items())
    return Finding(measured, better and max(lowest.values()) >= _DEEP)


def _added_by_norm(analysis: Analysis, cell: str) -> Finding:
    parts, holds = [], True
    for depth in (depth for depth in analysis.config.depths if depth >= _DEEP):
        losses = {variant: analysis.loss(analysis.stack(cell, variant, depth)) for variant in VARIANTS}
        parts.append(f"{depth} layers: " + ", ".join(f"{name} {loss}" for name, loss in losses.items()))
        holds &= losses["residual_norm"].below(losses["plain"])
    return Finding("; ".join(parts), holds)


def _wide(analysis: Analysis, cell: str) -> Finding:
    deep = analysis.stack(cell, "plain", analysis.config.side_depth)
    wide = analysis.config.wide_stack(cell)
    found = analysis.loss(wide), analysis.loss(deep)
    costs = [analysis.cost(stack) for stack in (wide, deep)]
    times = " against ".join(f"{cost['milliseconds']:.0f} ms" for cost in costs if cost)
    measured = (
        f"{wide.depth} layers of {wide.width}: {found[0]}; {deep.depth} of {deep.width}: {found[1]}; "
        f"an update takes {times}"
    )
    return Finding(measured, found[0].below(found[1]))


def _cost(analysis: Analysis, cell: str) -> Finding:
    fits, parts = [], []
    for name in ("milliseconds", "mebibytes"):
        costs = {d: analysis.cost(analysis.stack(cell, "residual_norm", d)) for d in analysis.config.cost_depths}
        y = [cost[name] for cost in costs.values() if cost]
        slope, intercept = np.polyfit(list(costs), y, 1)
        error = float(np.abs(np.polyval((slope, intercept), list(costs)) - y).max() / max(y))
        fits.append(error)
        parts.append(f"{intercept:.0f} + {slope:.1f} {name} a layer (largest deviation {error:.0%})")
    return Finding("; ".join(parts), max(fits) < 0.15)


def _rates(analysis: Analysis, cell: str) -> Finding:
    depths = [depth for depth in analysis.config.depths if depth > 1]
    found = {
        variant: {d: analysis.highest_stable_rate(analysis.stack(cell, variant, d)) for d in depths}
        for variant in VARIANTS
    }
    measured = "; ".join(
        f"{variant} " + ", ".join(f"{depth}: {rate:g}" for depth, rate in rates.items())
        for variant, rates in found.items()
    )
    higher = sum(found["residual_norm"][d] > found["residual"][d] for d in depths)
    lower = sum(found["residual_norm"][d] < found["residual"][d] for d in depths)
    return Finding(f"{measured}; higher with normalisation at {higher} depths, lower at {lower}", higher > lower)


def _initialisation(analysis: Analysis, cell: str) -> Finding:
    losses: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for run, record in analysis.sides("initialisation"):
        if run.stack.cell == cell:
            losses[run.stack.variant].append(record["validation_loss"])
    ranges = ", ".join(f"{x:g}" for x in analysis.config.init_ranges)
    parts = [f"{variant} {', '.join(f'{x:.2f}' for x in values)}" for variant, values in losses.items()]
    spans = {variant: max(values) - min(values) for variant, values in losses.items()}
    return Finding(f"loss for +-{ranges}: {'; '.join(parts)}", spans["residual_norm"] < spans["residual"])


def _activations(analysis: Analysis, cell: str) -> Finding:
    depth = max(analysis.config.depths)
    ratios = {}
    for variant in ("residual", "residual_norm"):
        spreads = [
            spread
            for when in ("start", "end")
            for spread in analysis.layer_values(analysis.stack(cell, variant, depth), when, "encoder_spread")
        ]
        ratios[variant] = max(spreads) / min(spreads)
    measured = ", ".join(f"{variant} {ratio:.1f}" for variant, ratio in ratios.items())
    return Finding(
        f"largest / smallest standard deviation over layers, start and end: {measured}",
        ratios["residual_norm"] < ratios["residual"],
    )


def _clipping(analysis: Analysis, cell: str) -> Finding:
    found: dict[str, dict[bool, str]] = {}
    worse = False
    values: dict[tuple[str, bool], float] = {}
    for run, record in analysis.sides("clipping"):
        if run.stack.cell == cell:
            clipped = run.clip_norm is not None
            values[run.stack.variant, clipped] = record["validation_loss"]
            note = " (diverged)" if record["diverged"] else ""
            found.setdefault(run.stack.variant, {})[clipped] = f"{record['validation_loss']:.2f}{note}"
    for variant in found:
        worse |= values[variant, False] > values[variant, True] + 0.1
    measured = "; ".join(f"{variant} with {by[True]}, without {by[False]}" for variant, by in found.items())
    shares = ", ".join(
        f"{depth}: {analysis.clipped_share(analysis.stack(cell, 'plain', depth)):.0%}"
        for depth in analysis.config.depths
    )
    return Finding(f"{measured}; share of clipped updates by depth, plain: {shares}", worse)


def _time(analysis: Analysis, cell: str) -> Finding:
    fits = [analysis.time_decay(cell, when) for when in ("start", "end")]
    start, end = (fit.factor if fit else math.nan for fit in fits)
    measured = f"factor per time step {start:.2f} at the start, {end:.2f} at the end"
    return Finding(measured, end < _KEPT if cell == "rnn" else end >= _KEPT)


def _projection(analysis: Analysis, cell: str) -> Finding:
    factors = {name: analysis.untrained(cell, name).factor for name in ("none", "add", "project")}
    measured = ", ".join(f"{shortcut} {factor:.2f}" for shortcut, factor in factors.items())
    return Finding(
        f"factor per layer at the start, widths alternating: {measured}", factors["project"] > factors["none"]
    )


CLAIMS = (
    Claim(
        "Plain stacks deeper than 4 to 6 layers rarely help and often hurt",
        f"no depth over {_SHALLOW} is better than the best one up to it",
        _plain_limit,
    ),
    Claim("Each further layer gains less", "no later step gains as much a layer as the first", _diminishing),
    Claim(
        "Each layer weakens the gradient by a factor below 1, in LSTMs too",
        f"factor at the start below {1 - _TOLERANCE:g} (plain, greatest depth)",
        _attenuation,
    ),
    Claim(
        "The gradient k layers down is the k-th power of a constant",
        "a constant factor explains over 90% of the variance of log norms",
        _power_law,
    ),
    Claim(
        "Over time a plain RNN loses the gradient; LSTM cells (and other gated ones) keep it",
        f"factor per time step after training below {_KEPT:g} (rnn), at least {_KEPT:g} (others)",
        _time,
    ),
    Claim(
        "The shortcut is a direct path that keeps gradients from vanishing",
        "larger factor than plain, lowest layer gets over a tenth",
        _shortcut_path,
    ),
    Claim(
        "Where widths differ, a learned projection takes the shortcut's place",
        "larger factor than without shortcut",
        _projection,
    ),
    Claim(
        "With residual connections 8 to 12 layers are practical",
        f"beats plain from {_DEEP} layers on, and a best depth of at least {_DEEP}",
        _residual_limit,
    ),
    Claim(
        "Residuals and normalisation help deep stacks",
        f"residual_norm better than plain at every depth from {_DEEP}",
        _added_by_norm,
    ),
    Claim("Normalisation steadies what enters each layer", "smaller ratio with it than without", _activations),
    Claim(
        "Normalisation makes training less sensitive to the initialisation",
        "smaller range of losses than residual alone",
        _initialisation,
    ),
    Claim("Normalisation allows higher learning rates", "highest stable rate higher at more depths than lower", _rates),
    Claim(
        "Clipping is essential where depth meets time", "without it some variant is worse by over 0.1 nats", _clipping
    ),
    Claim("Each layer adds the same time and memory", "a line fits within 15% of the largest", _cost),
    Claim(
        "At equal cost a wider shallow stack beats a deep plain one", "lower loss by over two standard errors", _wide
    ),
)
