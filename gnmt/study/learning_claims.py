"""Claims about what is learned: validation loss, learning rates, initialisation, clipping, cost."""

import itertools

import numpy as np

from gnmt.study.analysis import Analysis, Mean
from gnmt.study.claim import Claim, Finding, listed, losses
from gnmt.study.settings import VARIANTS

# Depths that the texts call deep, and shallow enough for plain stacks.
_DEEP, _SHALLOW = 8, 6
# Nats per token that count as a difference where there are too few seeds for an error.
_NOTABLE = 0.1


def _deep(analysis: Analysis) -> list[int]:
    return [depth for depth in analysis.config.depths if depth >= _DEEP]


def _best(by_depth: dict[int, Mean]) -> int:
    return min(by_depth, key=lambda depth: by_depth[depth].value)


def _plain_limit(analysis: Analysis, cell: str) -> Finding:
    plain = losses(analysis, cell, "plain")
    shallow = {depth: loss for depth, loss in plain.items() if depth <= _SHALLOW}
    if not shallow or not _deep(analysis):
        return Finding("not enough depths were studied", None)
    best = plain[_best(shallow)]
    helps = [depth for depth in _deep(analysis) if plain[depth].below(best)]
    hurts = [depth for depth in _deep(analysis) if best.below(plain[depth])]
    measured = (
        f"{listed(plain)}; a model of token frequencies alone has {analysis.unigram_loss:.2f}; "
        f"{_DEEP} or more layers help at {helps or 'no depth'}, hurt at {hurts or 'no depth'}"
    )
    return Finding(measured, False if helps else True if hurts else None)


def _diminishing(analysis: Analysis, cell: str) -> Finding:
    plain = losses(analysis, cell, "plain")
    pairs = list(itertools.pairwise(plain))
    gains = [(plain[a].value - plain[b].value) / (b - a) for a, b in pairs]
    measured = "nats gained per added layer: " + ", ".join(
        f"{a} to {b}: {gain:+.3f}" for (a, b), gain in zip(pairs, gains, strict=True)
    )
    first, second = (plain[depth] for depth in pairs[0])
    if len(gains) < 2 or not (first.below(second) or second.below(first)):
        return Finding(measured, None)
    return Finding(measured, gains[0] > 0 and max(gains[1:]) < gains[0])


def _residual_limit(analysis: Analysis, cell: str) -> Finding:
    plain, residual = losses(analysis, cell, "plain"), losses(analysis, cell, "residual")
    deep = _deep(analysis)
    measured = f"residual {listed(residual)}, best at {_best(residual)}; plain {listed(plain)}"
    if not deep:
        return Finding(measured, None)
    better = all(residual[depth].below(plain[depth]) for depth in deep)
    best = residual[_best(residual)]
    return Finding(measured, better and not all(best.below(residual[depth]) for depth in deep))


def _norm_helps(analysis: Analysis, cell: str) -> Finding:
    without, with_norm = losses(analysis, cell, "residual"), losses(analysis, cell, "residual_norm")
    deep = _deep(analysis)
    measured = f"residual {listed(without)}; residual_norm {listed(with_norm)}"
    if any(without[depth].below(with_norm[depth]) for depth in deep):
        return Finding(measured, False)
    return Finding(measured, True if deep and all(with_norm[d].below(without[d]) for d in deep) else None)


def _initialisation(analysis: Analysis, cell: str) -> Finding:
    found: dict[str, dict[float, list[float]]] = {variant: {} for variant in VARIANTS}
    for run, record in analysis.sides("initialisation"):
        if run.stack.cell == cell:
            found[run.stack.variant].setdefault(run.stack.init_range, []).append(record["validation_loss"])
    means = {variant: {x: Mean.of(values) for x, values in by.items()} for variant, by in found.items()}
    measured = "; ".join(
        f"{variant} " + ", ".join(f"+-{x:g}: {mean}" for x, mean in by.items()) for variant, by in means.items()
    )
    spans = {
        variant: max(mean.value for mean in by.values()) - min(mean.value for mean in by.values())
        for variant, by in means.items()
    }
    difference = spans["residual"] - spans["residual_norm"]
    measured += "; range " + ", ".join(f"{variant} {span:.2f}" for variant, span in spans.items())
    return Finding(measured, difference > 0 if abs(difference) > _NOTABLE else None)


def _rates(analysis: Analysis, cell: str) -> Finding:
    higher, lower, parts = 0, 0, []
    top = max(analysis.config.learning_rates)
    for depth in analysis.config.depths[1:]:
        rates = {variant: analysis.highest_stable_rate(analysis.stack(cell, variant, depth)) for variant in VARIANTS}
        parts.append(
            f"{depth} layers: "
            + ", ".join(
                f"{variant} " + ("learned nothing" if rate is None else f"{'>=' if rate == top else ''}{rate:g}")
                for variant, rate in rates.items()
            )
        )
        with_norm, without = rates["residual_norm"], rates["residual"]
        if with_norm is not None and without is not None:
            higher += with_norm > without
            lower += with_norm < without
    measured = f"{'; '.join(parts)}; higher with normalisation at {higher} depths, lower at {lower}"
    return Finding(measured, higher > lower if higher != lower else None)


def _clipping(analysis: Analysis, cell: str) -> Finding:
    found: dict[str, dict[bool, list[float]]] = {variant: {True: [], False: []} for variant in VARIANTS}
    for run, record in analysis.sides("clipping"):
        if run.stack.cell == cell:
            found[run.stack.variant][run.clip_norm is not None].append(record["validation_loss"])
    means = {variant: (Mean.of(by[True]), Mean.of(by[False])) for variant, by in found.items()}
    shares = {v: analysis.clipped_share(analysis.stack(cell, v, analysis.config.side_depth)) for v in VARIANTS}
    measured = "; ".join(
        f"{variant} {clipped} with, {free} without ({shares[variant]:.0%} of updates clipped in full trainings)"
        for variant, (clipped, free) in means.items()
    )
    return Finding(measured, any(free.value > clipped.value + _NOTABLE for clipped, free in means.values()))


def _cost(analysis: Analysis, cell: str) -> Finding:
    costs = {d: analysis.cost(analysis.stack(cell, "residual_norm", d)) for d in analysis.config.depths}
    errors, parts = [], []
    for name in ("milliseconds", "mebibytes"):
        y = [cost[name] for cost in costs.values()]
        slope, intercept = np.polyfit(list(costs), y, 1)
        errors.append(float(np.abs(np.polyval((slope, intercept), list(costs)) - y).max() / max(y)))
        parts.append(f"{intercept:.0f} + {slope:.1f} {name} a layer (largest deviation {errors[-1]:.0%})")
    return Finding("; ".join(parts), max(errors) < 0.15 if len(costs) > 2 else None)


def _wide(analysis: Analysis, cell: str) -> Finding:
    wide, deep = analysis.config.wide_stack(cell), analysis.stack(cell, "plain", analysis.config.side_depth)
    found = analysis.loss(wide), analysis.loss(deep)
    times = " against ".join(f"{analysis.cost(stack)['milliseconds']:.0f} ms" for stack in (wide, deep))
    measured = (
        f"{wide.depth} layers of {wide.width}: {found[0]}; {deep.depth} of {deep.width}: {found[1]}; "
        f"an update takes {times}"
    )
    return Finding(measured, True if found[0].below(found[1]) else False if found[1].below(found[0]) else None)


LEARNING_CLAIMS = (
    Claim(
        "Plain stacks deeper than 4 to 6 layers rarely help and often hurt",
        f"no depth from {_DEEP} on is better than the best one up to {_SHALLOW}, and some is worse",
        _plain_limit,
    ),
    Claim(
        "In plain stacks each further layer gains less",
        "the second layer gains, and no later one as much",
        _diminishing,
    ),
    Claim(
        "With residual connections 8 to 12 layers are practical",
        f"better than plain at every depth from {_DEEP}, and one of these is not worse than the best residual depth",
        _residual_limit,
    ),
    Claim(
        "Normalisation is another technique that helps with depth",
        f"residual_norm better than residual at every depth from {_DEEP}; does not hold if worse at any",
        _norm_helps,
    ),
    Claim(
        "Normalisation makes training less sensitive to the initialisation",
        f"range of losses over initialisations smaller by {_NOTABLE:g} nats than with residuals alone",
        _initialisation,
    ),
    Claim(
        "Normalisation allows higher learning rates",
        "highest stable rate of the trials higher at more depths than lower, against residuals alone",
        _rates,
    ),
    Claim(
        "Gradient clipping is essential where depth meets time",
        f"without it some variant is worse by over {_NOTABLE:g} nats. AdamW, which is used here, hardly depends on the "
        "scale of gradients; plain SGD does",
        _clipping,
    ),
    Claim("Each layer adds the same time and memory", "a line fits within 15% of the largest", _cost),
    Claim(
        "At equal cost a wider shallow stack beats a deep plain one",
        "its loss is lower",
        _wide,
    ),
)
