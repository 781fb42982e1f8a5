"""Translate text, one line in, one line out: `python translate.py -m runs/default < source.txt > target.txt`."""

import argparse
import contextlib
import logging
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

from gnmt.checkpoint import load_model
from gnmt.config import SearchConfig
from gnmt.errors import ConfigError, DataError, run_program
from gnmt.lines import open_bytes, read_blocks, read_lines
from gnmt.translator import WINDOW, Translation, Translator

logger = logging.getLogger("translate")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Print one line to stderr and leave with status 2."""
        self.exit(2, f"error: {message} (--help lists the options)\n")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; option names may be written with underscores."""
    defaults = SearchConfig()
    parser = Parser(
        description="Translate text: one UTF-8 line in, one line out, always and in order.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("-m", "--model", required=True, help="run folder, model folder or .ckpt file")
    add("-i", "--input", default="-", help="text to translate, - is standard input")
    add("-o", "--output", default="-", help="file to write, - is standard output; it appears when it is complete")
    add("-b", "--beam-size", type=int, default=defaults.beam_size, help="hypotheses kept while searching; 1 is greedy")
    add("-n", "--n-best", type=int, default=1, help="lines written for each input line, best first")
    add("--length-penalty", type=float, default=defaults.length_penalty, help="alpha of the length normalisation")
    add("--coverage-penalty", type=float, default=defaults.coverage_penalty, help="beta of the coverage penalty")
    add("--max-length-factor", type=float, default=defaults.max_length_factor, help="output tokens per input token")
    add("--max-input-length", type=int, default=500, help="tokens of a line; the rest is cropped, with a warning")
    add("--batch-size", type=int, default=64, help="sentences or source tokens translated at once")
    add("--batch-type", choices=("sents", "tokens"), default="sents", help="what --batch-size counts")
    add("--with-scores", action="store_true", help="write score TAB log-probability TAB translation")
    add("--reference", help="file of reference translations; BLEU and chrF go to standard error")
    add("--device", default="auto", help="cpu, cuda, cuda:1, ...; auto takes a GPU if there is one")
    add("-q", "--quiet", action="store_true", help="only errors and scores on standard error")
    add("-v", "--verbose", action="store_true", help="progress on standard error")
    return parser.parse_args([_hyphenated(argument) for argument in arguments])


def _hyphenated(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else argument


class Job:
    """One run of the program: where lines come from and go to, and what has happened so far.

    Args:
        options: the parsed command line.

    Raises:
        GNMTError: an option or a file cannot be used; nothing has been written.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.source_name = "standard input" if options.input == "-" else options.input
        self.lines_done, self.cropped, self.cut_off = 0, 0, 0
        self.best: list[str] = []
        search = SearchConfig(
            beam_size=options.beam_size,
            num_hypotheses=options.n_best,
            length_penalty=options.length_penalty,
            coverage_penalty=options.coverage_penalty,
            max_length_factor=options.max_length_factor,
        )
        _check_output(options)
        self.references = list(read_lines(options.reference)) if options.reference else None
        self.translator = Translator(
            load_model(options.model),
            search,
            device=options.device,
            batch_size=options.batch_size,
            batch_type=options.batch_type,
            max_input_length=options.max_input_length,
        )
        if self.references is not None:
            from gnmt.metrics import check_target_lang  # loading sacrebleu takes a while, and only scoring needs it

            check_target_lang(self.translator.target_lang)

    def run(self) -> None:
        """Translate everything, then report."""
        start = time.perf_counter()
        with _open_input(self.options.input) as source:
            self._check(source)
            with _open_output(self.options.output) as target:
                for block in self._windows(source):
                    translations = self.translator.translate_batch(block)
                    target.write("".join(map(self._format, translations)).encode("utf-8"))
                    target.flush()
                    self._account(translations)
        seconds = time.perf_counter() - start
        summary = f"{self.lines_done} lines in {seconds:.1f} s ({self.lines_done / max(seconds, 1e-9):.1f} lines/s)"
        logger.warning("%s%s", summary, self._remarks())
        if self.references is not None:
            self._score(self.references)

    def _check(self, source: BinaryIO) -> None:
        """Read a regular file once, to find text that is not UTF-8 and a wrong number of references beforehand."""
        if not _is_regular(source):
            return
        start = source.tell()
        lines = sum(len(block) for block in read_blocks(source, self.source_name))
        source.seek(start)
        if self.references is not None and len(self.references) != lines:
            raise DataError(
                f"{self.options.reference} has {len(self.references)} lines and {self.source_name} has {lines}, "
                "expected one reference for each line"
            )

    def _windows(self, source: BinaryIO) -> Iterator[list[str]]:
        for block in read_blocks(source, self.source_name):
            for start in range(0, len(block), WINDOW):
                yield block[start : start + WINDOW]

    def _format(self, translation: Translation) -> str:
        """The output lines of one input line: exactly --n-best, the last ones blank if there are fewer translations."""
        lines = []
        for hypothesis in translation.hypotheses:
            scores = f"{hypothesis.score:.6f}\t{hypothesis.log_prob:.6f}\t" if self.options.with_scores else ""
            lines.append(scores + hypothesis.text)
        blank = "-inf\t-inf\t" if self.options.with_scores else ""
        return "".join(line + "\n" for line in lines + [blank] * (self.options.n_best - len(lines)))

    def _account(self, translations: list[Translation]) -> None:
        for number, translation in enumerate(translations, start=self.lines_done + 1):
            if translation.is_cropped:
                self.cropped += 1
                limit = self.options.max_input_length
                logger.warning(
                    "line %d: too long, %d tokens: only the first %d were translated (--max-input-length)",
                    number,
                    translation.source_tokens,
                    limit,
                )
            if not translation.hypotheses[0].is_complete:
                self.cut_off += 1
                logger.warning("line %d: the translation reached its length limit (--max-length-factor)", number)
        self.lines_done += len(translations)
        if self.references is not None:
            self.best.extend(translation.text for translation in translations)
        logger.info("%d lines done", self.lines_done)

    def _remarks(self) -> str:
        counts = ((self.cropped, "cropped"), (self.cut_off, "cut off at the length limit"))
        return "".join(f", {count} {what}" for count, what in counts if count)

    def _score(self, references: list[str]) -> None:
        from gnmt.metrics import score

        print(score(self.best, references, self.translator.target_lang), file=sys.stderr)


def _check_output(options: argparse.Namespace) -> None:
    """Refuse an output that would destroy something, or could not be written, before any work is done."""
    if options.output == "-":
        streams = os.fstat(0), os.fstat(1)
        if options.input == "-" and stat.S_ISREG(streams[1].st_mode) and os.path.samestat(*streams):
            raise ConfigError("standard input and standard output are the same file; write to another one")
        return
    output = Path(options.output)
    if output.is_dir():
        raise ConfigError(f"output {output} is a folder; name a file")
    if not output.parent.is_dir():
        raise ConfigError(f"cannot write {output}: there is no folder {output.parent}")
    for path in filter(None, (options.input, options.reference)):
        for written in (output, _partial(output)):
            if _same_file(path, written):
                raise ConfigError(
                    f"{path} is read and {written} is written, but they are the same file; name another --output"
                )


def _same_file(first: str, second: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(0) if first == "-" else Path(first).stat(), second.stat())
    return False


def _partial(output: Path) -> Path:
    return output.with_name(output.name + ".part")


def _is_regular(stream: BinaryIO) -> bool:
    return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)


@contextlib.contextmanager
def _open_input(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        os.set_blocking(0, True)
    with open_bytes(0 if path == "-" else path) as stream:
        yield stream


@contextlib.contextmanager
def _open_output(path: str) -> Iterator[BinaryIO]:
    """Standard output, or a file that gets its name when it is complete; until then, what is done stands in FILE.part.

    Something that exists and is no regular file (a link, a pipe, a device) is written directly.
    """
    output = Path(path)
    if path == "-":
        yield sys.stdout.buffer
        return
    is_special = output.is_symlink() or (output.exists() and not output.is_file())
    try:
        stream = (output if is_special else _partial(output)).open("wb")
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror}") from None
    with stream:
        yield stream
    if not is_special:
        _partial(output).replace(output)


def _abandon_stdout() -> None:
    """Let the interpreter's last flush go nowhere: what could not be written now cannot be written then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> int:
    """Run the program: exit status 0, 1 at a run-time failure, 2 for bad input, 130 when interrupted."""
    options = parse_arguments(sys.argv[1:])
    level = logging.ERROR if options.quiet else logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(message)s")
    job = Job(options)
    try:
        job.run()
    except BrokenPipeError:
        _abandon_stdout()
        print(f"error: the output was closed after {job.lines_done} lines", file=sys.stderr)
        return 1
    except OSError as error:
        _abandon_stdout()
        print(f"error: {error.strerror or error} after {job.lines_done} lines", file=sys.stderr)
        return 1
    except FloatingPointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted after {job.lines_done} lines", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
