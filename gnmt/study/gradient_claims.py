"""Claims about gradients and activations: what happens on the way through layers and time."""

import math

from gnmt.study.analysis import Analysis
from gnmt.study.claim import Claim, Finding

# A factor per layer or time step within this distance of another one counts as equal to it.
_TOLERANCE = 0.03
# A layer that gets less than this share of the top layer's gradient gets next to nothing.
_LITTLE = 0.1


def _factors(analysis: Analysis, cell: str, variant: str) -> tuple[float, float]:
    """Per layer at the greatest depth, at the start and the end of training (NaN if every seed diverged)."""
    stack = analysis.stack(cell, variant, max(analysis.config.depths))
    fits = [analysis.gamma(stack, when) for when in ("start", "end")]
    start, end = (fit.factor if fit else math.nan for fit in fits)
    return start, end


def _attenuation(analysis: Analysis, cell: str) -> Finding:
    start, end = _factors(analysis, cell, "plain")
    by_range = {x: analysis.untrained(cell, f"{x:g}").factor for x in analysis.config.init_ranges}
    others = ", ".join(f"+-{x:g}: {factor:.2f}" for x, factor in by_range.items())
    depth, side_depth = max(analysis.config.depths), analysis.config.side_depth
    measured = (
        f"{depth} plain layers: {start:.2f} at the start, {end:.2f} at the end; "
        f"{side_depth} plain layers at the start by initialisation {others}"
    )
    return Finding(measured, max(start, *by_range.values()) < 1 - _TOLERANCE)


def _power_law(analysis: Analysis, cell: str) -> Finding:
    stack = analysis.stack(cell, "plain", max(analysis.config.depths))
    fit = analysis.gamma(stack, "start")
    assert fit is not None
    return Finding(f"a constant factor explains {fit.r_squared:.0%} of the variance", fit.r_squared > 0.9)


def _lower_layers(analysis: Analysis, cell: str) -> Finding:
    stack = analysis.stack(cell, "plain", max(analysis.config.depths))
    shares = {when: analysis.parameter_ratio(stack, when) for when in ("start", "later")}
    measured = ", ".join(f"{when} {share:.2g}" for when, share in shares.items())
    return Finding(
        f"gradient of the lowest layer's parameters over the top one's, {stack.depth} encoder layers: {measured}",
        shares["start"] < _LITTLE,
    )


def _time(analysis: Analysis, cell: str) -> Finding:
    start, end = analysis.time_factors(cell)
    measured = f"factor per time step {start:.2f} at the start, {end:.2f} at the end"
    if cell == "rnn":
        return Finding(measured, max(start, end) < 1 - _TOLERANCE)
    if "rnn" not in analysis.config.cells:
        return Finding(f"{measured}; the plain RNN was not studied", None)
    others = analysis.time_factors("rnn")
    return Finding(measured, all(own > other + _TOLERANCE for own, other in zip((start, end), others, strict=True)))


def _vertical(analysis: Analysis, cell: str) -> Finding:
    layer, step = _factors(analysis, cell, "plain")[0], analysis.time_factors(cell)[0]
    measured = f"at the start {layer:.2f} per layer, {step:.2f} per time step"
    return Finding(measured, layer < step if abs(layer - step) > _TOLERANCE else None)


def _shortcut_path(analysis: Analysis, cell: str) -> Finding:
    stack = analysis.stack(cell, "residual", max(analysis.config.depths))
    plain, residual = _factors(analysis, cell, "plain")[0], _factors(analysis, cell, "residual")[0]
    norms = analysis.layer_values(stack, "start", "encoder_gradient")
    share = norms[0] / norms[-1]
    measured = (
        f"factor per layer {plain:.2f} without, {residual:.2f} with, "
        f"{_factors(analysis, cell, 'residual_norm')[0]:.2f} with normalisation too; "
        f"lowest / highest of {stack.depth} layers with it {share:.2g}"
    )
    return Finding(measured, residual > plain + _TOLERANCE and share > _LITTLE)


def _projection(analysis: Analysis, cell: str) -> Finding:
    factors = {name: analysis.untrained(cell, name).factor for name in ("none", "add", "project")}
    measured = ", ".join(f"{shortcut} {factor:.2f}" for shortcut, factor in factors.items())
    return Finding(f"factor per layer at the start: {measured}", factors["project"] > factors["none"] + _TOLERANCE)


def _activations(analysis: Analysis, cell: str) -> Finding:
    parts, holds = [], True
    for when in ("start", "end"):
        ratios = {}
        for variant in ("residual", "residual_norm"):
            stack = analysis.stack(cell, variant, max(analysis.config.depths))
            spreads = analysis.layer_values(stack, when, "encoder_spread")
            ratios[variant] = max(spreads) / min(spreads) if spreads else math.inf
        parts.append(f"{when}: " + ", ".join(f"{variant} {ratio:.1f}" for variant, ratio in ratios.items()))
        holds &= ratios["residual_norm"] < ratios["residual"]
    return Finding(f"largest / smallest standard deviation over layers, {'; '.join(parts)}", holds)


def _independence(analysis: Analysis, cell: str) -> Finding:
    difference = analysis.batch_difference(cell)
    measured = f"largest difference between a row in a batch while training and alone at inference: {difference:.1e}"
    return Finding(measured, difference < 1e-4)


GRADIENT_CLAIMS = (
    Claim(
        "Each layer weakens the gradient by a factor below 1, in LSTMs too",
        f"factor at the start below {1 - _TOLERANCE:g} with every initialisation",
        _attenuation,
    ),
    Claim(
        "The gradient k layers down is the k-th power of a constant factor",
        "a constant factor explains over 90% of the variance of log norms over layers (plain, greatest depth, start)",
        _power_law,
    ),
    Claim(
        "Lower layers of plain stacks receive a fraction of the signal (and so effectively stop learning)",
        f"less than {_LITTLE:g} of the top layer's gradient at the start. Whether they stop learning is not measured: "
        "AdamW scales updates by past gradients, however small they are",
        _lower_layers,
    ),
    Claim(
        "Over time a plain RNN loses the gradient; the cell state of an LSTM preserves it",
        f"rnn: factor per step below {1 - _TOLERANCE:g}; others: above the plain RNN's, at the start and the end",
        _time,
    ),
    Claim(
        "In deep stacks the way through the layers becomes the bottleneck, rather than that through time",
        "factor per layer below the factor per time step",
        _vertical,
    ),
    Claim(
        "The shortcut is a direct path that keeps gradients from vanishing",
        f"larger factor than in plain stacks, and the lowest layer gets over {_LITTLE:g} of the highest one's gradient",
        _shortcut_path,
    ),
    Claim(
        "Where widths differ, a learned projection takes the shortcut's place",
        "larger factor than without shortcut where layers come in pairs of two widths (not trained, only the start)",
        _projection,
    ),
    Claim(
        "Normalisation steadies the distribution of what enters each layer",
        "smaller ratio of standard deviations over layers with it than without, at the start and the end",
        _activations,
    ),
    Claim(
        "Normalisation needs no batch statistics and is the same at inference",
        "a row's encoder outputs differ by less than 1e-4",
        _independence,
    ),
)
