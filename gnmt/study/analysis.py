"""From the records of a study to the numbers that are reported; means and standard errors are over seeds."""

import csv
import itertools
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gnmt.files import new_file
from gnmt.study.results import Results
from gnmt.study.runner import best_rates, cost_key
from gnmt.study.settings import Run, Stack, StudyConfig

# A trial is stable if it ends within so many nats of the stack's best trial, and has learned something if it is so much
# better than a model of token frequencies.
STABLE_MARGIN, LEARNED_MARGIN = 0.3, 0.2
# Student's t, two-sided 95%, for 1, 2, ... degrees of freedom.
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31)


class Mean(NamedTuple):
    """A mean over seeds with its standard error (0 for one seed)."""

    value: float
    error: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Mean":
        """Of some measurements."""
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        return cls(statistics.fmean(values), error, len(values))

    def below(self, other: "Mean") -> bool:
        """Whether it is lower than another one, at 95% confidence (t test); never for single measurements."""
        freedom = self.seeds + other.seeds - 2
        if freedom < 1:
            return False
        t = _T[freedom - 1] if freedom <= len(_T) else 2.0
        return other.value - self.value > t * math.hypot(self.error, other.error)

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"


class Fit(NamedTuple):
    """log y = a + x log(factor): the factor per unit of x, and the share of the variance that the line explains."""

    factor: float
    r_squared: float

    @classmethod
    def of(cls, x: Sequence[float], y: Sequence[float]) -> "Fit":
        """Least squares; zeros count as the smallest float32."""
        logs = np.log(np.maximum(y, 1e-38))
        slope, intercept = np.polyfit(x, logs, 1)
        residual = logs - (slope * np.asarray(x) + intercept)
        variance = logs.var()
        return cls(float(np.exp(slope)), float(1 - residual.var() / variance) if variance else 1.0)

    @classmethod
    def per_layer(cls, norms: Sequence[float]) -> "Fit":
        """Of a quantity by the number of layers above; the lowest layer comes first."""
        return cls.of(range(len(norms)), norms[::-1])


class Analysis:
    """Everything that tables, plots and claims ask for.

    Args:
        config: of the study.
        results: all of them.
    """

    def __init__(self, config: StudyConfig, results: Results) -> None:
        self.config = config
        self._records = results.records
        self.best_rates = best_rates(config, results)

    def finals(self, stack: Stack) -> list[dict[str, Any]]:
        """The records of a stack's final trainings, one for each seed."""
        runs = self.config.finals({stack: [self.best_rates[stack]]}, self.config.seeds)
        return [self._records[run.key] for run in runs]

    def stack(self, cell: str, variant: str, depth: int) -> Stack:
        """A stack of the grid."""
        return Stack(cell, variant, depth, self.config.width)

    def loss(self, stack: Stack) -> Mean:
        """Validation loss of the final trainings, nats per token."""
        return Mean.of([record["validation_loss"] for record in self.finals(stack)])

    def trials(self, stack: Stack) -> dict[float, float]:
        """Validation loss of the search by learning rate."""
        runs = [run for run in self.config.searches() if run.stack == stack]
        return {run.learning_rate: self._records[run.key]["validation_loss"] for run in runs}

    @property
    def unigram_loss(self) -> float:
        """Validation loss of a model of token frequencies alone."""
        return float(self._records["unigram"]["validation_loss"])

    def highest_stable_rate(self, stack: Stack) -> float | None:
        """The highest rate up to which, from the best one on, all trials are stable; None if nothing was learned."""
        trials = self.trials(stack)
        best = min(trials, key=lambda rate: trials[rate])
        limit = min(trials[best] + STABLE_MARGIN, self.unigram_loss - LEARNED_MARGIN)
        if trials[best] > limit:
            return None
        stable = itertools.takewhile(lambda rate: trials[rate] <= limit, (r for r in sorted(trials) if r >= best))
        return max(stable)

    def layer_values(self, stack: Stack, when: str, name: str) -> list[float]:
        """Geometric mean over seeds of what `probe_layers` found, lowest layer first; of seeds that did not diverge."""
        found = [record[when][name] for record in self.finals(stack) if when in record]
        return [
            math.exp(statistics.fmean(math.log(max(x, 1e-38)) for x in values)) for values in zip(*found, strict=True)
        ]

    def gamma(self, stack: Stack, when: str) -> Fit | None:
        """The factor by which an encoder layer changes the gradient norm that passes down; None for one layer.

        The encoder is the cleaner case: a decoder's bottom layer gets a gradient from the attention too.
        """
        norms = self.layer_values(stack, when, "encoder_gradient")
        return Fit.per_layer(norms) if len(norms) > 1 else None

    def time_factors(self, cell: str) -> tuple[float, float]:
        """By what a plain layer changes a gradient that goes back one time step: shallowest stack, start and end."""
        stack = self.stack(cell, "plain", self.config.depths[0])
        norms = [self.layer_values(stack, when, "time_gradient") for when in ("start", "end")]
        start, end = (Fit.of(range(len(by_lag)), by_lag).factor if len(by_lag) > 1 else math.nan for by_lag in norms)
        return start, end

    def parameter_ratio(self, stack: Stack, when: str) -> float:
        """Gradient norm of the lowest encoder layer's parameters over the top one's, geometric mean over seeds."""
        logs = [record["gradients"][when] for record in self.finals(stack) if when in record["gradients"]]
        if not logs:
            return math.nan
        return math.exp(statistics.fmean(log["encoder_1"] - log[f"encoder_{stack.depth}"] for log in logs))

    def batch_difference(self, cell: str) -> float:
        """Largest difference that `probe_independence` found."""
        return float(self._records[f"independence {cell}"]["difference"])

    def clipped_share(self, stack: Stack) -> float:
        """Mean share of clipped updates in the final trainings."""
        return statistics.fmean(record["clipped_share"] for record in self.finals(stack))

    def cost(self, stack: Stack) -> dict[str, float]:
        """Time, memory and parameters of an update."""
        return self._records[cost_key(stack)]

    def sides(self, stage: str) -> list[tuple[Run, dict[str, Any]]]:
        """The trainings on `initialisation` or `clipping`, with their records."""
        return [(run, self._records[run.key]) for run in self.config.sides(self.best_rates) if run.stage == stage]

    def untrained(self, cell: str, name: str) -> Fit:
        """The factor per layer before training, of one of `StudyConfig.untrained`."""
        return Fit.per_layer(self._records[f"start {cell} {name}"]["encoder_gradient"])


def write_tables(analysis: Analysis, folder: Path) -> None:
    """Write `stacks.csv`, `layers.csv`, `trials.csv` and `sides.csv`."""
    stacks = list(analysis.best_rates)
    _write(folder / "stacks.csv", [_stack_row(analysis, stack) for stack in stacks])
    _write(folder / "layers.csv", [row for stack in stacks for row in _layer_rows(analysis, stack)])
    trials = [
        {**_name(stack), "learning_rate": rate, "validation_loss": loss}
        for stack in stacks
        for rate, loss in analysis.trials(stack).items()
    ]
    _write(folder / "trials.csv", trials)
    sides = [
        {
            "stage": stage,
            **_name(run.stack),
            "init_range": run.stack.init_range,
            "clip_norm": run.clip_norm,
            "learning_rate": run.learning_rate,
            "validation_loss": record["validation_loss"],
            "diverged": record["diverged"],
            "clipped_share": record["clipped_share"],
        }
        for stage in ("initialisation", "clipping")
        for run, record in analysis.sides(stage)
    ]
    _write(folder / "sides.csv", sides)


def _name(stack: Stack) -> dict[str, Any]:
    return {"cell": stack.cell, "variant": stack.variant, "depth": stack.depth, "width": stack.width}


def _stack_row(analysis: Analysis, stack: Stack) -> dict[str, Any]:
    loss, cost = analysis.loss(stack), analysis.cost(stack)
    row: dict[str, Any] = {
        **_name(stack),
        "learning_rate": analysis.best_rates[stack],
        "highest_stable_rate": analysis.highest_stable_rate(stack),
        "validation_loss": loss.value,
        "standard_error": loss.error,
        "diverged": sum(record["diverged"] for record in analysis.finals(stack)),
        "clipped_share": analysis.clipped_share(stack),
    }
    for when in ("start", "end"):
        fit = analysis.gamma(stack, when)
        row[f"factor_per_layer_{when}"] = fit.factor if fit else ""
    return row | {name: cost[name] for name in ("milliseconds", "mebibytes", "parameters")}


def _layer_rows(analysis: Analysis, stack: Stack) -> list[dict[str, Any]]:
    rows = []
    for seed, record in zip(analysis.config.seeds, analysis.finals(stack), strict=True):
        for when, later in (("start", "start"), ("end", "later")):
            if when not in record or later not in record["gradients"]:
                continue
            for side in ("encoder", "decoder"):
                for number in range(1, stack.depth + 1):
                    rows.append(
                        {
                            **_name(stack),
                            "seed": seed,
                            "when": when,
                            "side": side,
                            "layer": number,
                            "output_gradient": record[when][f"{side}_gradient"][number - 1],
                            "output_spread": record[when][f"{side}_spread"][number - 1],
                            "parameter_gradient": math.exp(record["gradients"][later][f"{side}_{number}"]),
                        }
                    )
    return rows


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    with new_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
