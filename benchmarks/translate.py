"""Speed of translation on one CPU process: precisions, beams, batch sizes; start-up and memory of the whole program.

`python benchmarks/translate.py MODEL SOURCE_FILE [--lines 300]` prints Markdown. "Of the limit" compares with a machine
that does nothing but the weights' products, at the rate that one of them reaches here at as many rows.
"""

import argparse
import itertools
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from limits import multiplied_weights, seconds

from gnmt import SearchConfig, Translator
from gnmt.checkpoint import Model, load_model
from gnmt.inference.products import build_product
from gnmt.lines import read_lines

TRANSLATE = Path(__file__).resolve().parents[1] / "translate.py"


def product_rate(width: int, rows: int, precision: str) -> float:
    """Operations a second of the gates' product of a layer that reads its input and the context."""
    product = build_product(torch.randn(4 * width, 3 * width), None, precision)
    x = torch.randn(rows, 3 * width)
    return 2 * rows * 12 * width * width / seconds(lambda: product(x))


def measure(model: Model, lines: list[str], precision: str, beam_size: int, batch_size: int) -> str:
    """A row of the table."""
    translator = Translator(
        model, SearchConfig(beam_size=beam_size), device="cpu", precision=precision, batch_size=batch_size
    )
    translator.translate_batch(lines[:16])
    network_time = Stopwatch(translator)
    latencies = []
    start = time.perf_counter()
    translations = []
    for chunk in _chunks(lines, batch_size):
        begin = time.perf_counter()
        translations += translator.translate_batch(chunk)
        latencies.append(time.perf_counter() - begin)
    duration = time.perf_counter() - start
    tokens = sum(len(part.tokens) + 1 for each in translations for part in each.hypotheses[0].parts)
    sources = sum(each.source_tokens + 1 for each in translations)
    encoder, decoder = multiplied_weights(model.network)
    products = 2.0 * (encoder * sources + decoder * tokens * beam_size)
    share = products / duration / product_rate(model.network.config.hidden_size, beam_size * batch_size, precision)
    latency = "{:.0f} / {:.0f} ms".format(*np.percentile(latencies, [50, 99]) * 1e3) if batch_size == 1 else ""
    return (
        f"| {precision} | {beam_size} | {batch_size} | {len(lines) / duration:.1f} | {tokens / duration:,.0f} "
        f"| {network_time.total / duration:.0%} | {share:.0%} | {latency} |"
    )


class Stopwatch:
    """Adds up the time that a translator spends in its network: encoding and single steps; the rest is search."""

    def __init__(self, translator: Translator) -> None:
        self.total = 0.0
        model = translator._engine._model
        for name in ("encode", "step"):
            setattr(model, name, self._timed(getattr(model, name)))

    def _timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                self.total += time.perf_counter() - start

        return timed


def _chunks(lines: list[str], batch_size: int) -> list[list[str]]:
    """One line at a time for latencies; all lines at once otherwise, so that batches are filled up again."""
    return [[line] for line in lines] if batch_size == 1 else [lines]


def whole_program(options: argparse.Namespace, precision: str) -> str:
    """A row of the second table: one line, then the lines of the file, from start to end."""
    command = [sys.executable, TRANSLATE, "-m", options.model, "--precision", precision, "--device", "cpu", "-q"]
    text = "".join(line + "\n" for line in itertools.islice(read_lines(options.source), options.lines))
    durations = []
    for given in (text[: text.index("\n") + 1], text):
        start = time.perf_counter()
        subprocess.run(command, input=given.encode(), stdout=subprocess.DEVNULL, check=True)
        durations.append(time.perf_counter() - start)
    # The largest process so far; translate.py's workers share most of their memory with their parent.
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return f"| {precision} | {durations[0]:.2f} s | {options.lines / durations[1]:.1f} | {memory:,.0f} MiB |"


def main() -> None:
    """Print both tables, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--precisions", nargs="+", default=["int8", "bf16", "fp32"])
    options = parser.parse_args()
    print("| precision | one line | lines/s | largest process |\n|---|---|---|---|")
    for precision in options.precisions:
        print(whole_program(options, precision), flush=True)
    model = load_model(options.model)
    lines = list(itertools.islice(read_lines(options.source), options.lines))
    print(f"\n{torch.get_num_threads()} threads in one process:\n")
    print(
        "| precision | beam | batch | sentences/s | tokens/s | in the network | of the limit | latency p50 / p99 |\n|"
        + "---|" * 8
    )
    for precision, beam_size, batch_size in itertools.product(options.precisions, (1, 5), (1, 64)):
        print(measure(model, lines, precision, beam_size, batch_size), flush=True)


if __name__ == "__main__":
    main()
