"""The program around one job: messages, exit status, and what is left when something stops it."""

import argparse
import logging
import signal
import sys
from pathlib import Path

from gnmt.translation.job import Job
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
    rank, output = find_rank(), Path(options.output)
    if rank.world_size > 1:
        options = options_of_rank(options, rank)
    if rank.world_size == 1 or not Path(options.output).exists():
        status = _run(options, rank)
        if status:
            return status
    if rank.world_size > 1 and merge(output, rank.world_size):
        print(f"all {rank.world_size} parts are in {output}", file=sys.stderr)
    return 0


def _run(options: argparse.Namespace, rank: Rank) -> int:
    job = None
    try:
        job = Job(options, rank)
        job.run()
    except BrokenPipeError:
        abandon_stdout()
        print(f"error: the output was closed after {job.lines_done if job else 0} lines", file=sys.stderr)
        return 1
    except OSError as error:
        abandon_stdout()
        print(f"error: {error.strerror or error} after {job.lines_done if job else 0} lines", file=sys.stderr)
        return 1
    except (FloatingPointError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted after {job.lines_done if job else 0} lines", file=sys.stderr)
        return 130
    return 0
