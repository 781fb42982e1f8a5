"""One run of translate.py: lines in, translations out, and the account of what happened."""

import argparse
import contextlib
import functools
import logging
import time
from collections.abc import Sequence

import torch

from gnmt.checkpoint import Model, load_model
from gnmt.config import SearchConfig
from gnmt.translation.account import Account
from gnmt.translation.demands import Demands
from gnmt.translation.inputs import Inputs, Window
from gnmt.translation.ranks import Rank
from gnmt.translation.resume import Resumable
from gnmt.translation.streams import check_outputs
from gnmt.translation.workers import Workers, count_devices, is_gpu
from gnmt.translation.writer import Writer, check_plot_folder, output_files
from gnmt.translator import Translation, Translator

logger = logging.getLogger("translate")


def search_config(options: argparse.Namespace) -> SearchConfig:
    """The search that the command line asks for; when sampling, as many draws as are written."""
    return SearchConfig(
        beam_size=options.n_best if options.temperature else options.beam_size,
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


def build_translator(options: argparse.Namespace, models: Sequence[Model], device: str) -> Translator:
    """A translator with the models and options of the command line."""
    return Translator(
        models,
        search_config(options),
        device=device,
        precision=options.precision,
        batch_size=options.batch_size,
        batch_type=options.batch_type,
        max_input_length=options.max_input_length,
        on_long=options.on_long,
        by_sentence=options.paragraphs,
        keep_attention=bool(options.alignments or options.attention_plot or options.format == "json"),
    )


def _translator_of_gpu(options: argparse.Namespace, k: int) -> Translator:
    return build_translator(options, [load_model(path) for path in options.model], f"cuda:{k}")


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
        self.lines_done = 0
        search_config(options)
        read = [path for path in (options.input, options.reference, options.constraints) if path]
        check_outputs([name for name, _ in output_files(options)], read, resume=options.resume_output)
        if options.attention_plot:
            check_plot_folder(options.attention_plot)
        self._num_devices = 1 if options.score_only else count_devices(options.devices, options.device)
        on_gpu = is_gpu(options.device)
        if self._num_devices > 1 and not on_gpu:
            torch.set_num_threads(1)  # processes are copied only before any computation with several threads
        models = [load_model(path) for path in options.model]
        device = "cpu" if on_gpu and self._num_devices > 1 else options.device
        self._translator = translator = build_translator(options, models, device)
        self._resumable = Resumable(options, models, translator.precision)
        make = functools.partial(_translator_of_gpu, options) if on_gpu else lambda _: translator
        self._make, self._fork = make, not on_gpu
        self._demands = Demands(translator.tokenizer, whole_words=translator.puts_spaces, exclude=options.exclude)
        self._inputs = Inputs(options, rank, self._demands)
        references = None if options.score_only else self._inputs.references
        self._account = Account(options, translator, references)

    def run(self) -> None:
        """Translate everything, then report."""
        start = time.perf_counter()
        with contextlib.ExitStack() as stack:
            inputs = stack.enter_context(self._inputs)
            wanted = self._resumable.wanted(inputs.check())
            writer = stack.enter_context(Writer(self._options, self._translator.tokenizer))
            self._engine: Translator | Workers = self._translator
            if self._num_devices > 1:
                self._engine = stack.enter_context(Workers(self._make, self._num_devices, fork=self._fork))
            for window in inputs.windows(wanted):
                translations = self._translate(window)
                remarks = [
                    self._account.remarks(*each)
                    for each in zip(window.units, translations, window.demands, strict=True)
                ]
                writer.write(window.units, translations, remarks)
                for unit, its_remarks in zip(window.units, remarks, strict=True):
                    for remark in its_remarks:
                        logger.warning("line %d: %s", unit.number, remark)
                self.lines_done += len(window.units)
                logger.info("%d lines done", self.lines_done)
        self._resumable.end()
        seconds = time.perf_counter() - start
        speed = self.lines_done / max(seconds, 1e-9)
        logger.warning("%d lines in %.1f s (%.1f lines/s)%s", self.lines_done, seconds, speed, self._account.summary())
        self._account.print_scores()

    def _translate(self, window: Window) -> list[Translation]:
        lines, numbers = [unit.text for unit in window.units], [unit.number for unit in window.units]
        if self._options.score_only:
            return self._scored(lines, window.references or [])
        is_free = not any(window.demands)
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
