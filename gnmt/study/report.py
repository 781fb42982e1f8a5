"""`report.md`: the setting, each claim with what was measured, the tables and the pictures."""

import datetime
import os
from pathlib import Path

import torch

from gnmt.files import new_file
from gnmt.study.analysis import LEARNED_MARGIN, STABLE_MARGIN, Analysis, write_tables
from gnmt.study.claims import CLAIMS
from gnmt.study.plots import write_plots
from gnmt.study.results import Results
from gnmt.study.settings import VARIANTS, Stack, StudyConfig

_FILES = """## Files

`stacks.csv` one row a stack, `layers.csv` gradients and activations by layer, `trials.csv` the search for learning
rates, `sides.csv` initialisation and clipping, `runs.jsonl` every record, `study.json` the settings."""


def write_report(config: StudyConfig, results: Results, folder: Path, command: str) -> None:
    """Write tables, pictures and the report of a finished study into its folder.

    Args:
        config: of the study.
        results: all of them.
        folder: of the study.
        command: what started it.
    """
    analysis = Analysis(config, results)
    write_tables(analysis, folder)
    pictures = write_plots(analysis, folder)
    sections = [
        "# Depth study",
        _setting(config, command),
        "## Claims",
        *(_claim(analysis, number) for number in range(len(CLAIMS))),
        "## Validation loss\n\nNats per token, mean and standard error over seeds; in brackets the learning rate.",
        *(_losses(analysis, cell) for cell in config.cells),
        "## Pictures",
        *(f"![{name}]({name})" for name in pictures),
        _FILES,
    ]
    with new_file(folder / "report.md") as partial:
        partial.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def _setting(config: StudyConfig, command: str) -> str:
    rates = config.learning_rates
    return f"""`{command}`, finished {datetime.date.today().isoformat()}, {os.cpu_count()} CPU cores,
torch {torch.__version__}.

A translation network with the same number of layers in encoder and decoder (but at least two in the decoder, whose
bottom layer does not read the context), all of width {config.width} and unidirectional, wiring `parallel`, additive
attention, {config.vocab_size} shared pieces, trained on `{config.train.path}`
without dropout or label smoothing, in float32, by AdamW on batches of {config.tokens_per_batch} padded tokens,
gradients clipped at norm 1. Variants: {", ".join(f"`{name}`" for name in VARIANTS)}; shortcuts
begin at layer 2, normalisation stands behind the sum.

Every stack has the same budget. Learning rate: {len(rates)} of them ({rates[0]:g} to {rates[-1]:g}) in trials of
{config.search_updates} updates; the best {config.num_candidates} are trained in full with the first seed, the better
one is taken. Final trainings: {config.updates} updates with {len(config.seeds)} seeds; means are given with their
standard error, and "better" is a t test at 95%. A trial is stable if it ends within {STABLE_MARGIN:g} nats of the
stack's best one and at least {LEARNED_MARGIN:g} below a model of token frequencies. Factors per layer are fitted to the
norms of the loss' gradient for the encoder layers' outputs. What a short training on a small corpus shows need not hold
for a long one on a large corpus."""


def _claim(analysis: Analysis, number: int) -> str:
    claim = CLAIMS[number]
    lines = [f"### {number + 1}. {claim.text}", "", f"Holds if: {claim.rule}.", ""]
    for cell in analysis.config.cells:
        finding = claim.examine(analysis, cell)
        verdict = {True: "**holds**", False: "**does not hold**", None: "**is not decided**"}[finding.holds]
        lines.append(f"- {cell}: {verdict}. {finding.measured}.")
    return "\n".join(lines)


def _losses(analysis: Analysis, cell: str) -> str:
    depths = analysis.config.depths
    lines = [f"| {cell} | {' | '.join(map(str, depths))} |", f"|---|{'---|' * len(depths)}"]
    for variant in VARIANTS:
        stacks = [analysis.stack(cell, variant, depth) for depth in depths]
        cells = [_loss(analysis, stack) for stack in stacks]
        lines.append(f"| {variant} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _loss(analysis: Analysis, stack: Stack) -> str:
    diverged = sum(record["diverged"] for record in analysis.finals(stack))
    note = f"; {diverged} diverged" if diverged else ""
    return f"{analysis.loss(stack)} ({analysis.best_rates[stack]:g}{note})"
