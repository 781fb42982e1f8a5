"""The program around one job: messages, exit status, and what is left when something stops it."""

import argparse
import logging
import signal
import sys
from pathlib import Path

from gnmt.errors import is_out_of_memory
from gnmt.translation.job import Job, Tally
from gnmt.translation.options import parse_arguments
from gnmt.translation.ranks import Rank, find_rank, merge, options_of_rank
from gnmt.translation.streams import abandon_stdout


def translate(arguments: list[str]) -> int:
    """Run translate.py: exit status 0, 1 at a run-time failure, 130 when interrupted.

    Raises:
        GNMTError: options or input that cannot be used (status 2).
    """
    options = parse_arguments(arguments)
    level = logging.ERROR if options.quiet else logging.INFO if options.verbose else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(message)s")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # workers are ended on the way out
    rank = find_rank()
    tally = Tally()
    try:
        return _run(options, rank, tally)
    except BrokenPipeError:
        abandon_stdout()
        print(f"error: the output was closed after {tally.lines_done} lines", file=sys.stderr)
        return 1
    except OSError as error:
        abandon_stdout()
        name = f"{error.filename}: " if error.filename else ""
        print(f"error: {name}{error.strerror or error} after {tally.lines_done} lines", file=sys.stderr)
        return 1
    except (FloatingPointError, MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not is_out_of_memory(error):
            raise
        print(f"error: {str(error).partition(chr(10))[0] or 'out of memory'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted after {tally.lines_done} lines", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace, rank: Rank, tally: Tally) -> int:
    if rank.world_size == 1:
        Job(options, rank).run(tally)
        return 0
    Job(options_of_rank(options, rank), rank).run(tally)
    if merge(Path(options.output), rank.world_size):
        print(f"all {rank.world_size} parts are in {options.output}", file=sys.stderr)
    return 0
