"""One run of translate.py: lines in, translations out, and the account of what happened."""

import argparse
import contextlib
import functools
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gnmt.checkpoint import Model, load_model
from gnmt.config import SearchConfig
from gnmt.inference.products import fastest_precision
from gnmt.translation.account import Account
from gnmt.translation.demands import Demands
from gnmt.translation.inputs import Inputs, Window
from gnmt.translation.ranks import Rank
from gnmt.translation.resume import Resumable, noted_precision
from gnmt.translation.streams import check_inputs, check_outputs
from gnmt.translation.workers import CAN_COPY, Workers, count_devices, is_gpu
from gnmt.translation.writer import Writer, output_files
from gnmt.translator import Translation, Translator

logger = logging.getLogger("translate")


def search_config(options: argparse.Namespace) -> SearchConfig:
    """The search that the command line asks for; as many draws, or given translations, as are written."""
    return SearchConfig(
        beam_size=options.n_best if options.temperature or options.score_only else options.beam_size,
        num_hypotheses=options.n_best,
        length_penalty=options.length_penalty,
        coverage_penalty=options.coverage_penalty,
        max_length_factor=options.max_length_factor,
        token_pruning=options.token_pruning,
        hypothesis_pruning=options.hypothesis_pruning,
        stop_margin=options.stop_margin,
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
    )


def build_translator(options: argparse.Namespace, models: Sequence[Model], device: str, precision: str) -> Translator:
    """A translator with the models and options of the command line."""
    return Translator(
        models,
        search_config(options),
        device=device,
        precision=precision,
        batch_size=options.batch_size,
        batch_type=options.batch_type,
        max_input_length=options.max_input_length,
        on_long=options.on_long,
        by_sentence=options.paragraphs,
        keep_attention=bool(options.alignments or options.attention_plot or options.format == "json"),
    )


def _translator_of_worker(options: argparse.Namespace, precision: str, k: int) -> Translator:
    """What a process loads that is no copy of this one."""
    device = f"cuda:{k}" if is_gpu(options.device) else options.device
    return build_translator(options, [load_model(path) for path in options.model], device, precision)


@dataclass
class Tally:
    """How far a run has come.

    Attributes:
        lines_done: input lines whose translations are written.
    """

    lines_done: int = 0


class Job:
    """One run, from its options to its last line.

    Args:
        options: the parsed command line.
        rank: which part of the input is to be translated; by default all of it.

    Raises:
        GNMTError: an option or a file cannot be used; nothing has been written.
    """

    def __init__(self, options: argparse.Namespace, rank: Rank = Rank(0, 1)) -> None:
        self._options = options
        search_config(options)
        read = [path for path in (options.input, options.reference, options.constraints) if path]
        check_inputs(read)
        check_outputs([name for name, _ in output_files(options)], read, resume=options.resume_output)
        self._num_devices = 1 if options.score_only else count_devices(options.devices, options.device)
        self._on_gpu = is_gpu(options.device)
        if self._num_devices > 1 and not self._on_gpu:
            torch.set_num_threads(1)  # processes are copied only before any computation with several threads
        models = [load_model(path) for path in options.model]
        is_loader = self._on_gpu and self._num_devices > 1  # the networks on the GPUs are those of the processes
        precision = noted_precision(options)
        if precision == "auto" and is_loader:
            precision = fastest_precision(torch.device("cuda"))
        self._translator = translator = build_translator(
            options, models, "cpu" if is_loader else options.device, "fp32" if is_loader else precision
        )
        self._precision = precision if is_loader else translator.precision
        self._resumable = Resumable(options, rank, models, self._precision)
        self._demands = Demands(translator.tokenizer, whole_words=translator.puts_spaces, exclude=options.exclude)
        self._inputs = Inputs(options, rank, self._demands)
        self._account = Account(options, translator, None if options.score_only else self._inputs.references)

    def run(self, tally: Tally | None = None) -> None:
        """Translate everything, then report.

        Args:
            tally: kept up to date.
        """
        tally, start = tally or Tally(), time.perf_counter()
        with contextlib.ExitStack() as stack:
            inputs, resumable = stack.enter_context(self._inputs), stack.enter_context(self._resumable)
            lines = inputs.check()
            if resumable.is_complete():
                return
            wanted = resumable.wanted(lines)
            writer = stack.enter_context(Writer(self._options, self._translator.tokenizer))
            resumable.begin()
            self._engine = self._start_engine(stack)
            for window in inputs.windows(wanted):
                self._translate_window(window, writer)
                tally.lines_done += len(window.units)
                logger.info("%d lines done", tally.lines_done)
        done, seconds = tally.lines_done, time.perf_counter() - start
        speed = done / max(seconds, 1e-9)
        logger.warning("%d lines in %.1f s (%.1f lines/s)%s", done, seconds, speed, self._account.summary())
        self._account.print_scores()

    def _start_engine(self, stack: contextlib.ExitStack) -> Translator | Workers:
        if self._num_devices == 1:
            return self._translator
        is_copy = not self._on_gpu and CAN_COPY
        load = functools.partial(_translator_of_worker, self._options, self._precision)
        make = (lambda _: self._translator) if is_copy else load
        return stack.enter_context(Workers(make, self._num_devices, fork=is_copy))

    def _translate_window(self, window: Window, writer: Writer) -> None:
        translations = self._translate(window)
        of_lines = zip(window.units, translations, window.demands, strict=True)
        remarks = [self._account.remarks(*each) for each in of_lines]
        writer.write(window.units, translations, remarks)
        for unit, its_remarks in zip(window.units, remarks, strict=True):
            for remark in its_remarks:
                logger.warning("line %d: %s", unit.number, remark)

    def _translate(self, window: Window) -> list[Translation]:
        lines, numbers = [unit.text for unit in window.units], [unit.number for unit in window.units]
        if self._options.score_only:
            return self._scored(lines, window.references or [])
        is_free = not any(map(any, window.demands))
        constraints = None if is_free else [self._demands.constraints(demand) for demand in window.demands]
        return self._engine.translate_batch(lines, constraints, numbers)

    def _scored(self, lines: Sequence[str], given: Sequence[str]) -> list[Translation]:
        """Given translations, n of each line, with their scores."""
        n, encode = self._options.n_best, self._translator.tokenizer.encode
        scored = self._translator.score_batch([line for line in lines for _ in range(n)], given)
        found = []
        for i, ids in enumerate(map(encode, lines)):
            sources, first_words = ((ids,), (0,)) if ids else ((), ())
            found.append(Translation(scored[i * n : (i + 1) * n], len(ids), False, sources, first_words))
        return found
