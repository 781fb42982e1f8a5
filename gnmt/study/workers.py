"""Worker processes: silent when interrupted, ended with their parent, and their results handed over as they come."""

import concurrent.futures
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch


def run_jobs(
    work: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], workers: int = 1, threads: int | None = None
) -> Iterator[tuple[int, Any]]:
    """Call `work` with the arguments of each job, in new processes.

    Args:
        work: a function of a module.
        jobs: arguments of each call.
        workers: processes at most.
        threads: of each process; None for torch's choice.

    Yields:
        the position of a job and its result, in the order in which they are done.

    Raises:
        OSError: a process was killed.
    """
    executor = concurrent.futures.ProcessPoolExecutor(
        max(1, min(workers, len(jobs))), multiprocessing.get_context("spawn"), _start, (os.getpid(), threads)
    )
    try:
        # Processes inherit that Ctrl-C is ignored until they have started up and can end without a word.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            futures = {executor.submit(work, *job): position for position, job in enumerate(jobs)}
        finally:
            signal.signal(signal.SIGINT, handler)
        for future in concurrent.futures.as_completed(futures):
            yield futures[future], future.result()
    except (KeyboardInterrupt, GeneratorExit):
        for process in multiprocessing.active_children():  # no waiting for what will be done again
            process.terminate()
        raise
    except BrokenProcessPool:
        raise OSError("a worker process was killed (out of memory?); the same command continues") from None
    finally:
        executor.shutdown(cancel_futures=True)


def _start(parent: int, threads: int | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if threads is not None:
        torch.set_num_threads(threads)
    torch.set_flush_denormal(True)  # a precaution: vanishing gradients may end among denormal numbers
    logging.disable()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent was killed, which could not tell it to."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
