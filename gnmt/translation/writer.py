"""Where translations are written: text or JSON, word links, pictures of attention."""

import argparse
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gnmt.errors import ConfigError
from gnmt.tokenizer import Tokenizer
from gnmt.translation.formats import alignment_line, json_line, text_lines
from gnmt.translation.streams import open_output
from gnmt.translation.units import Unit
from gnmt.translator import Translation

if TYPE_CHECKING:
    from gnmt.translation.plots import AttentionPlots


def output_files(options: argparse.Namespace) -> list[tuple[str, int]]:
    """The outputs that the command line names, `-` for standard output, and the lines of each for an input line."""
    links = [(options.alignments, 1)] if options.alignments else []
    return [(options.output, 1 if options.format == "json" else options.n_best), *links]


class Writer:
    """Opens the outputs that the command line names, and writes translations to them as they come.

    Args:
        options: the parsed command line.
        tokenizer: of the model.

    Raises:
        ConfigError: an output cannot be written.
    """

    def __init__(self, options: argparse.Namespace, tokenizer: Tokenizer) -> None:
        self._options, self._tokenizer = options, tokenizer
        self._plots = _plots(options.attention_plot) if options.attention_plot else None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._stack as stack:
            append = self._options.resume_output
            names = [name for name, _ in output_files(self._options)]
            self._target, *self._links = [stack.enter_context(open_output(name, append=append)) for name in names]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def write(self, units: Sequence[Unit], translations: Sequence[Translation], remarks: Sequence[list[str]]) -> None:
        """Write one window of lines; it stands in the files when this returns."""
        options, tokenizer = self._options, self._tokenizer
        if options.format == "json":
            rows = zip(units, translations, remarks, strict=True)
            texts = [json_line(unit.number, each, tokenizer, its_remarks) for unit, each, its_remarks in rows]
        else:
            with_scores = options.with_scores or options.score_only
            texts = [text_lines(translation, options.n_best, with_scores) for translation in translations]
        if self._plots:
            self._plot(self._plots, units, translations)
        for links in self._links:
            links.write("".join(alignment_line(each, tokenizer) for each in translations).encode("utf-8"))
            links.flush()
        self._target.write("".join(texts).encode("utf-8"))
        self._target.flush()

    def _plot(self, plots: "AttentionPlots", units: Sequence[Unit], translations: Sequence[Translation]) -> None:
        for unit, translation in zip(units, translations, strict=True):
            parts = zip(translation.sources, translation.hypotheses[0].parts, strict=True)
            for i, (ids, part) in enumerate(parts, start=1):
                if part.attention is not None and part.tokens:
                    name = f"{unit.number}" if i == 1 else f"{unit.number}-{i}"
                    plots.draw(name, self._tokenizer.pieces(ids), self._tokenizer.pieces(part.tokens), part.attention)


def _plots(folder: str) -> "AttentionPlots":
    from gnmt.translation.plots import AttentionPlots  # loading matplotlib takes a while

    try:
        return AttentionPlots(Path(folder))
    except OSError as error:
        raise ConfigError(f"--attention-plot {folder} cannot be used as a folder: {error.strerror}") from None
