"""One run of translate.py: lines in, translations out, and the account of what happened."""

import argparse
import contextlib
import functools
import itertools
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import torch

from gnmt.checkpoint import load_model
from gnmt.config import SearchConfig
from gnmt.errors import ConfigError, DataError
from gnmt.lines import read_blocks, read_lines
from gnmt.translation.demands import Demand, constraints_of, read_demands
from gnmt.translation.formats import alignment_line, json_line, mismatches, text_lines
from gnmt.translation.ranks import Rank
from gnmt.translation.streams import check_outputs, is_regular, lines_written, open_input, open_output
from gnmt.translation.units import Unit, paragraphs, single_lines
from gnmt.translation.workers import Workers, count_devices, is_gpu
from gnmt.translator import WINDOW, TextHypothesis, Translation, Translator

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
        no_repeat_ngram_size=options.no_repeat_ngram_size,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
    )


def build_translator(options: argparse.Namespace, device: str) -> Translator:
    """Load the models of the command line onto a device."""
    return Translator(
        [load_model(path) for path in options.model],
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
    return build_translator(options, f"cuda:{k}")


class Job:
    """Where lines come from and go to, and what has happened so far.

    Args:
        options: the parsed command line.
        rank: which part of the input is to be translated; by default all of it.

    Raises:
        GNMTError: an option or a file cannot be used; nothing has been written.
    """

    def __init__(self, options: argparse.Namespace, rank: Rank = Rank(0, 1)) -> None:
        self.options, self.rank = options, rank
        self.source_name = "standard input" if options.input == "-" else options.input
        self.lines_done, self.cropped, self.cut_off, self.mismatched = 0, 0, 0, 0
        self.best: list[str] = []
        search_config(options)
        inputs = [path for path in (options.input, options.reference, options.constraints) if path]
        outputs = [options.output, *([options.alignments] if options.alignments else [])]
        check_outputs(outputs, inputs, resume=options.resume_output)
        lines_each = 1 if options.format == "json" else options.n_best
        self.skipped = lines_written(Path(options.output), lines_each) if options.resume_output else 0
        self.references = list(read_lines(options.reference)) if options.reference else None
        self.num_devices = 1 if options.score_only else count_devices(options.devices, options.device)
        on_gpu = is_gpu(options.device)
        if self.num_devices > 1 and not on_gpu:
            torch.set_num_threads(1)  # processes are copied only before any computation with several threads
        self.translator = build_translator(options, "cpu" if on_gpu and self.num_devices > 1 else options.device)
        self.tokenizer = self.translator.tokenizer
        # Lines often have the same demand, and spelling it in all ways takes a while.
        self.constraints_of = functools.lru_cache(256)(functools.partial(constraints_of, tokenizer=self.tokenizer))
        make = functools.partial(_translator_of_gpu, options) if on_gpu else lambda _: self.translator
        self.make, self.fork = make, not on_gpu
        if self.references is not None and not options.score_only:
            from gnmt.metrics import check_target_lang  # loading sacrebleu takes a while, and only scoring needs it

            check_target_lang(self.translator.target_lang)

    def run(self) -> None:
        """Translate everything, then report."""
        options, start = self.options, time.perf_counter()
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(open_input(options.input))
            wanted = self._check(source)
            target = stack.enter_context(open_output(options.output, append=options.resume_output))
            links = stack.enter_context(open_output(options.alignments)) if options.alignments else None
            self.engine: Translator | Workers = self.translator
            if self.num_devices > 1:
                self.engine = stack.enter_context(Workers(self.make, self.num_devices, fork=self.fork))
            demands: Iterator[Demand] | None = None
            if options.constraints:
                demands = itertools.islice(read_demands(options.constraints, options.exclude), wanted.start, None)
            elif options.exclude:
                demands = itertools.repeat(Demand(exclude=tuple(options.exclude)))
            for units in self._windows(source, wanted):
                translations = self._translate(units, demands)
                warnings = [self._account(*each) for each in zip(units, translations, strict=True)]
                self._write(target, links, units, translations, warnings)
                for unit, remarks in zip(units, warnings, strict=True):
                    for remark in remarks:
                        logger.warning("line %d: %s", unit.number, remark)
                self.lines_done += len(units)
                logger.info("%d lines done", self.lines_done)
        seconds = time.perf_counter() - start
        summary = f"{self.lines_done} lines in {seconds:.1f} s ({self.lines_done / max(seconds, 1e-9):.1f} lines/s)"
        logger.warning("%s%s", summary, self._remarks())
        if self.references is not None and not options.score_only:
            self._score(self.references)

    def _check(self, source: BinaryIO) -> range:
        """Read a regular file once, to find text that is not UTF-8 and a wrong number of references beforehand.

        Returns:
            the units, counted from 0, that are to be translated: this rank's without those that are done.
        """
        if not is_regular(source):
            if self.rank.world_size > 1:
                raise ConfigError(f"{self.source_name} is no regular file, expected one to share among several ranks")
            return range(sys.maxsize)
        start = source.tell()
        lines = sum(len(units) for units in self._units(source))
        source.seek(start)
        if self.options.constraints:
            demands = sum(1 for _ in read_demands(self.options.constraints, ()))
            if demands != lines:
                raise DataError(
                    f"{self.options.constraints} has {demands} lines and {self.source_name} has {lines}, "
                    "expected one for each"
                )
        expected = lines * (self.options.n_best if self.options.score_only else 1)
        if self.references is not None and len(self.references) != expected:
            raise DataError(
                f"{self.options.reference} has {len(self.references)} lines and {self.source_name} has {lines}, "
                f"expected {'one reference' if expected == lines else f'{self.options.n_best} lines'} for each line"
            )
        return self.rank.lines(lines)[self.skipped :]

    def _units(self, source: BinaryIO) -> Iterator[list[Unit]]:
        blocks = read_blocks(source, self.source_name)
        return paragraphs(blocks) if self.options.paragraphs else single_lines(blocks)

    def _windows(self, source: BinaryIO, wanted: range) -> Iterator[list[Unit]]:
        if self.skipped:
            logger.warning("resumed behind line %d", self.skipped)
        first = 0
        for block in self._units(source):
            begin, end = (max(limit - first, 0) for limit in (wanted.start, wanted.stop))
            for start in range(begin, min(end, len(block)), WINDOW):
                yield block[start : min(start + WINDOW, end)]
            first += len(block)

    def _translate(self, units: Sequence[Unit], demands: Iterator[Demand] | None) -> list[Translation]:
        lines, numbers = [unit.text for unit in units], [unit.number for unit in units]
        if self.options.score_only:
            return self._score_given(lines)
        constraints = None
        if demands is not None:
            these = list(itertools.islice(demands, len(units)))
            if len(these) < len(units):
                raise DataError(
                    f"{self.options.constraints} ends before line {numbers[len(these)]} of {self.source_name}, "
                    "expected one line for each"
                )
            constraints = [self.constraints_of(demand) for demand in these]
        return self.engine.translate_batch(lines, constraints, numbers)

    def _score_given(self, lines: Sequence[str]) -> list[Translation]:
        """The references as translations, each line's N in their order."""
        n, first = self.options.n_best, self.lines_done * self.options.n_best
        given = (self.references or [])[first : first + n * len(lines)]
        if len(given) < n * len(lines):
            raise DataError(f"{self.options.reference} has fewer lines than {self.source_name}, expected {n} for each")
        scored: list[TextHypothesis] = self.translator.score_batch([line for line in lines for _ in range(n)], given)
        sources = [tuple(filter(None, [self.tokenizer.encode(line)])) for line in lines]
        return [
            Translation(scored[i * n : (i + 1) * n], sum(map(len, ids)), False, ids) for i, ids in enumerate(sources)
        ]

    def _account(self, unit: Unit, translation: Translation) -> list[str]:
        """What a reader of this line should know; each is counted."""
        warnings, best, options = [], translation.hypotheses[0], self.options
        if translation.is_cropped:
            self.cropped += 1
            warnings.append(
                f"too long, {translation.source_tokens} tokens: only the first {options.max_input_length} were "
                "translated (--max-input-length, --on-long)"
            )
        if not best.is_complete:
            self.cut_off += 1
            warnings.append("the translation reached its length limit (--max-length-factor)")
        if options.report_mismatch and (different := mismatches(unit.text, best)):
            self.mismatched += 1
            warnings.append(f"differs from its source in: {', '.join(different)}")
        if self.references is not None:
            self.best.append(translation.text)
        return warnings

    def _write(
        self,
        target: BinaryIO,
        links: BinaryIO | None,
        units: Sequence[Unit],
        translations: Sequence[Translation],
        warnings: Sequence[list[str]],
    ) -> None:
        options = self.options
        if options.format == "json":
            numbered = zip([unit.number for unit in units], translations, warnings, strict=True)
            texts = [json_line(number, each, self.tokenizer, remarks) for number, each, remarks in numbered]
        else:
            with_scores = options.with_scores or options.score_only
            texts = [text_lines(translation, options.n_best, with_scores) for translation in translations]
        target.write("".join(texts).encode("utf-8"))
        target.flush()
        if links is not None:
            links.write("".join(alignment_line(each, self.tokenizer) for each in translations).encode("utf-8"))
            links.flush()
        if options.attention_plot:
            self._plot(units, translations)

    def _plot(self, units: Sequence[Unit], translations: Sequence[Translation]) -> None:
        from gnmt.translation.plots import AttentionPlots  # loading matplotlib takes a while

        plots = AttentionPlots(Path(self.options.attention_plot))
        for unit, translation in zip(units, translations, strict=True):
            for ids, part in zip(translation.sources, translation.hypotheses[0].parts, strict=True):
                if part.attention is not None and part.tokens:
                    pieces, target = self.tokenizer.pieces(ids), self.tokenizer.pieces(part.tokens)
                    plots.draw(unit.number, pieces, target, part.attention)

    def _remarks(self) -> str:
        counts = (
            (self.cropped, "cropped"),
            (self.cut_off, "cut off at the length limit"),
            (self.mismatched, "with other numbers or addresses than the source"),
        )
        return "".join(f", {count} {what}" for count, what in counts if count)

    def _score(self, references: list[str]) -> None:
        from gnmt.metrics import score

        print(score(self.best, references, self.translator.target_lang), file=sys.stderr)
