"""The study as a whole: stage after stage, in several processes, each result kept as soon as it is there."""

import functools
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from gnmt.data.bitext import hide_progress_bars
from gnmt.nn.gnmt import GNMT
from gnmt.nn.lstm import keep_compiled_kernels
from gnmt.study.corpus import Corpus
from gnmt.study.cost import measure
from gnmt.study.probe import probe_independence, probe_layers
from gnmt.study.results import Results
from gnmt.study.settings import Run, Stack, StudyConfig
from gnmt.study.training import train
from gnmt.study.workers import run_jobs

logger = logging.getLogger(__name__)


def run_study(config: StudyConfig, folder: Path, workers: int) -> Results:
    """Run or continue a study.

    Args:
        config: what is studied.
        folder: where results are kept.
        workers: processes, of one thread each, that train at the same time. Time and memory are measured last, alone.

    Returns:
        all results.

    Raises:
        GNMTError: the corpus cannot be used, or the folder belongs to another study.
        OSError: a worker process was killed, or the disk failed.
    """
    keep_compiled_kernels()  # worker processes inherit it
    results = Results(folder, config)
    corpus = Corpus(config, folder)  # fills the caches before the workers need them
    results.check_corpus(corpus.digest())
    logger.info("%d validation batches, results in %s", len(corpus.validation), folder)
    train_all = functools.partial(_train_all, config=config, folder=folder, workers=workers, results=results)
    train_all("trials of learning rates", config.searches())
    ranked = ranked_rates(config, results)
    candidates = {stack: rates[: config.num_candidates] for stack, rates in ranked.items()}
    train_all("final trainings, first seed", config.finals(candidates, config.seeds[:1]))
    best = best_rates(config, results)
    train_all("final trainings", config.finals({stack: [rate] for stack, rate in best.items()}, config.seeds))
    train_all("initialisation and clipping", config.sides(best))
    if "unigram" not in results.records:
        results.add("unigram", {"validation_loss": corpus.unigram_loss()})
    stacks = config.stacks()
    for number, stack in enumerate(stacks, start=1):
        if cost_key(stack) not in results.records:
            logger.info("time and memory %d/%d", number, len(stacks))
            results.add(cost_key(stack), measure(stack.network(config.vocab_size)))
    _probe_untrained(config, corpus, results)
    return results


def _probe_untrained(config: StudyConfig, corpus: Corpus, results: Results) -> None:
    for key, network in config.untrained().items():
        if key not in results.records:
            torch.manual_seed(config.seeds[0])
            results.add(key, dict(probe_layers(GNMT(network), corpus.probe_batch)))
    for cell in config.cells:
        key = f"independence {cell}"
        if key not in results.records:
            network = Stack(cell, "residual_norm", config.side_depth, config.width).network(config.vocab_size)
            results.add(key, {"difference": probe_independence(GNMT(network), corpus.probe_batch)})


def cost_key(stack: Stack) -> str:
    """What names the result of `gnmt.study.cost.measure`."""
    return f"cost {stack!r}"


def ranked_rates(config: StudyConfig, results: Results) -> dict[Stack, list[float]]:
    """Each stack's learning rates by the validation loss of their trials, best first."""
    trials: dict[Stack, list[Run]] = {}
    for run in config.searches():
        trials.setdefault(run.stack, []).append(run)
    return {
        stack: [run.learning_rate for run in sorted(runs, key=lambda run: _loss(run, results))]
        for stack, runs in trials.items()
    }


def best_rates(config: StudyConfig, results: Results) -> dict[Stack, float]:
    """Of each stack's candidates the rate with the lower validation loss after full training with the first seed."""
    best = {}
    for stack, rates in ranked_rates(config, results).items():
        runs = config.finals({stack: rates[: config.num_candidates]}, config.seeds[:1])
        best[stack] = min(runs, key=lambda run: _loss(run, results)).learning_rate
    return best


def _loss(run: Run, results: Results) -> float:
    loss: float = results.records[run.key]["validation_loss"]
    return loss


def _train_all(
    title: str, runs: Iterable[Run], config: StudyConfig, folder: Path, workers: int, results: Results
) -> None:
    todo = [run for run in runs if run.key not in results.records]
    if not todo:
        return
    logger.info("%s: %d trainings to do", title, len(todo))
    start = time.monotonic()
    jobs = [(run, config, folder) for run in todo]
    for count, (position, record) in enumerate(run_jobs(_train_one, jobs, workers, threads=1), start=1):
        results.add(todo[position].key, record)
        if count % 20 == 0 or count == len(todo):
            logger.info("%s: %d of %d, %.0f s", title, count, len(todo), time.monotonic() - start)


@functools.cache
def _corpus(config: StudyConfig, folder: Path) -> Corpus:
    """Read once in each worker process."""
    hide_progress_bars()
    return Corpus(config, folder)


def _train_one(run: Run, config: StudyConfig, folder: Path) -> dict[str, Any]:
    corpus = _corpus(config, folder)
    start = time.monotonic()
    record = train(run, config, corpus)
    return record | {"seconds": time.monotonic() - start}
