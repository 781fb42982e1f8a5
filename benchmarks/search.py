"""What the settings of search do to BLEU and time: `python benchmarks/search.py MODEL SOURCE REFERENCE`.

Translates the validation text once for each setting (greedy, wider beams, length and coverage penalties, stop margin,
pruning) and prints Markdown; the plot shows BLEU against time. Choose settings on validation text, never on test text.
"""

import argparse
import dataclasses
import math
import time
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gnmt import SearchConfig, Translator
from gnmt.checkpoint import load_model
from gnmt.lines import read_lines
from gnmt.metrics import score

BASE = SearchConfig()
GROUPS: dict[str, list[dict[str, float]]] = {
    "beam": [{"beam_size": size} for size in (1, 2, 5, 10)],
    "length penalty": [{"length_penalty": alpha} for alpha in (0.0, 0.2, 0.4, 0.8, 1.0)],
    "coverage penalty": [{"coverage_penalty": beta} for beta in (0.0, 0.05, 0.2, 0.5)],
    "stop margin": [{"stop_margin": margin} for margin in (math.inf, 2.0, 1.0, 0.5)],
    "pruning": [
        {"token_pruning": 3.0},
        {"hypothesis_pruning": 3.0},
        {"token_pruning": 3.0, "hypothesis_pruning": 3.0},
        {"token_pruning": 2.0, "hypothesis_pruning": 1.0},
        {"token_pruning": 3.0, "hypothesis_pruning": 3.0, "beam_size": 10},
    ],
}


class Steps:
    """Counts the steps of all sentences in a translator's batches, those that are done but not dropped yet included."""

    def __init__(self, translator: Translator) -> None:
        self.number = 0
        model: Any = translator._engine._model
        step = model.step

        def counted(tokens: Any, *arguments: Any) -> Any:
            self.number += len(tokens)
            return step(tokens, *arguments)

        model.step = counted


def main() -> None:
    """Print the table, a row as soon as it is measured, and draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("reference")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    model = load_model(options.model)
    lines, references = list(read_lines(options.source)), list(read_lines(options.reference))
    Translator(model, SearchConfig(beam_size=1), precision=options.precision).translate_batch(lines[:64])
    print(f"defaults: {BASE}\n\n| changed | BLEU | chrF | lines/s | steps/token | cut off |\n|" + "---|" * 6)
    points: dict[str, list[tuple[float, float, str]]] = {}
    for group, settings in GROUPS.items():
        for changes in settings:
            translator = Translator(model, dataclasses.replace(BASE, **changes), precision=options.precision)
            steps = Steps(translator)
            start = time.perf_counter()
            translations = translator.translate_batch(lines)
            duration = time.perf_counter() - start
            scores = score([translation.text for translation in translations], references, model.target_lang)
            cut_off = sum(not translation.hypotheses[0].is_complete for translation in translations)
            tokens = sum(len(part.tokens) + 1 for each in translations for part in each.hypotheses[0].parts)
            name = ", ".join(f"{key} {value:g}" for key, value in changes.items())
            speed = f"{len(lines) / duration:.0f} | {steps.number / tokens:.2f}"
            print(f"| {name} | {scores.bleu:.2f} | {scores.chrf:.2f} | {speed} | {cut_off} |", flush=True)
            points.setdefault(group, []).append((duration, scores.bleu, name))
    print(f"\n`{scores.bleu_signature}`, `{scores.chrf_signature}`")
    if options.plot:
        draw(points, options.plot)


def draw(points: dict[str, list[tuple[float, float, str]]], path: Path) -> None:
    """BLEU against seconds, a colour for each group of settings."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot(xlabel="seconds for the text", ylabel="BLEU")
    for group, found in points.items():
        seconds, bleu, _ = zip(*found, strict=True)
        axes.plot(seconds, bleu, "o-" if group == "beam" else "o", label=group)
        for x, y, name in found:
            axes.annotate(name.replace("_", " "), (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7)
    axes.legend()
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
