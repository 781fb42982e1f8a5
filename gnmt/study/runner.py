"""The study as a whole: stage after stage, in several processes, each result kept as soon as it is there."""

import concurrent.futures
import dataclasses
import functools
import json
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import torch

from gnmt.data.bitext import hide_progress_bars
from gnmt.errors import ConfigError
from gnmt.files import new_file
from gnmt.nn.gnmt import GNMT
from gnmt.nn.lstm import keep_compiled_kernels
from gnmt.study.corpus import Corpus
from gnmt.study.cost import measure
from gnmt.study.probe import probe_independence, probe_layers
from gnmt.study.settings import Run, Stack, StudyConfig
from gnmt.study.training import train

logger = logging.getLogger(__name__)


class Results:
    """`runs.jsonl`: one record a line, appended when it is there; a line cut off by a kill is measured again.

    Args:
        folder: of the study.
        config: a folder keeps the results of one configuration only.
    """

    def __init__(self, folder: Path, config: StudyConfig) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        description = json.loads(json.dumps(dataclasses.asdict(config)))
        known = folder / "study.json"
        if known.exists() and json.loads(known.read_text(encoding="utf-8")) != description:
            raise ConfigError(f"{folder} holds a study of other settings; name another --output or delete it")
        with new_file(known) as partial:
            partial.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        self._path = folder / "runs.jsonl"
        self.records: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            lines = self._path.read_text(encoding="utf-8").split("\n")
            whole = [line for line in lines[:-1] if line]
            self.records = {record["key"]: record for record in map(json.loads, whole)}
            with new_file(self._path) as partial:
                partial.write_text("".join(f"{line}\n" for line in whole), encoding="utf-8")

    def add(self, key: str, record: dict[str, Any]) -> None:
        """Keep a record."""
        self.records[key] = {"key": key, **record}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.records[key]) + "\n")


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
    """
    keep_compiled_kernels()  # worker processes inherit it
    results = Results(folder, config)
    corpus = Corpus(config, folder)  # fills the caches before the workers need them
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
    executor = concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker)
    try:
        futures = {executor.submit(_train_one, run, config, folder): run for run in todo}
        for count, future in enumerate(concurrent.futures.as_completed(futures), start=1):
            results.add(futures[future].key, future.result())
            if count % 20 == 0 or count == len(todo):
                logger.info("%s: %d of %d, %.0f s", title, count, len(todo), time.monotonic() - start)
    except KeyboardInterrupt:
        for process in multiprocessing.active_children():  # no waiting for trainings that will be done again
            process.terminate()
        raise
    except BrokenProcessPool:
        raise OSError("a worker process was killed (out of memory?); the same command continues the study") from None
    finally:
        executor.shutdown(cancel_futures=True)


def _start_worker() -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # vanishing gradients end among numbers with which CPUs are ten times slower
    logging.disable()
    hide_progress_bars()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker without a word; the parent has the last one
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent was killed, which could not tell it to."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


# Read once in each worker process.
_corpus = functools.cache(Corpus)


def _train_one(run: Run, config: StudyConfig, folder: Path) -> dict[str, Any]:
    corpus = _corpus(config, folder)
    start = time.monotonic()
    record = train(run, config, corpus)
    return record | {"seconds": time.monotonic() - start}
