"""`python -m gnmt.study`: run or continue the depth study, and write its tables, plots and report."""

import argparse
import dataclasses
import logging
import os
import signal
import sys
from pathlib import Path

from gnmt.config import CorpusConfig
from gnmt.errors import ConfigError, run_program
from gnmt.files import locked
from gnmt.study.settings import StudyConfig

_CORPUS = "data/home_assistant/en-de/{}.{{lang}}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(prog="python -m gnmt.study", description=__doc__, allow_abbrev=False)
    options.add_argument("--quick", action="store_true", help="a small version in under 3 minutes")
    options.add_argument("--output", type=Path, help="folder for results (default: runs/study, runs/study-quick)")
    options.add_argument("--train", default=_CORPUS.format("train"), help="training corpus (default: %(default)s)")
    options.add_argument("--validation", default=_CORPUS.format("validation"), help="(default: %(default)s)")
    options.add_argument("--source-lang", default="en", help="(default: %(default)s)")
    options.add_argument("--target-lang", default="de", help="(default: %(default)s)")
    options.add_argument("--vocab-size", type=int, default=2000, help="pieces (default: %(default)s)")
    options.add_argument("--cells", nargs="+", choices=("rnn", "gru", "lstm"), help="(default: rnn lstm)")
    options.add_argument("--depths", nargs="+", type=int, help="layers on each side (default: 1 2 4 6 8 12)")
    options.add_argument(
        "--workers", type=int, default=os.cpu_count(), help="trainings at a time (default: %(default)s)"
    )
    return options


def _config(options: argparse.Namespace) -> StudyConfig:
    config = StudyConfig(
        train=CorpusConfig(options.train),
        validation=CorpusConfig(options.validation),
        source_lang=options.source_lang,
        target_lang=options.target_lang,
        vocab_size=options.vocab_size,
    )
    if options.quick:
        config = config.quick()
    return dataclasses.replace(
        config, cells=tuple(options.cells or config.cells), depths=tuple(options.depths or config.depths)
    )


def main() -> int:
    """Run the command line: exit status 0, or 1 if a worker was killed or the disk failed."""
    # Every worker process imports this module: what takes seconds to load stays out of its head.
    from gnmt.data.bitext import hide_progress_bars
    from gnmt.study.report import write_report
    from gnmt.study.runner import run_study

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    hide_progress_bars()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = parser().parse_args()
    if options.workers < 1:
        raise ConfigError(f"--workers is {options.workers}, expected at least 1")
    folder = options.output or Path("runs") / ("study-quick" if options.quick else "study")
    config = _config(options)
    try:
        with locked(folder):
            results = run_study(config, folder, options.workers)
            write_report(config, results, folder, " ".join(["python -m gnmt.study", *sys.argv[1:]]))
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(folder / "report.md")
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
