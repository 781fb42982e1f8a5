"""Several processes that translate the same windows: CPU cores, or GPUs."""

import functools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, Self, TypeVar

import torch

from gnmt.errors import ConfigError, GNMTError
from gnmt.search.constraints import Constraints
from gnmt.translator import Translation, Translator

T = TypeVar("T")

# Whether processes can be copies of this one, which share its memory.
CAN_COPY = sys.platform == "linux"
# More processes than this gain little on most machines, and each needs memory of its own.
_MOST_PROCESSES = 8


def is_gpu(device: str) -> bool:
    """Whether a device, as the user named it, is a GPU here."""
    return device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())


def count_devices(wanted: str, device: str) -> int:
    """How many processes to use.

    Args:
        wanted: a number, or `auto` for the cores that this process may use, at most 8, or one GPU.
        device: as the user named it.

    Raises:
        ConfigError: there are fewer GPUs.
    """
    on_gpu = is_gpu(device)
    if on_gpu and wanted != "auto" and int(wanted) > torch.cuda.device_count():
        raise ConfigError(f"--devices {wanted}, but there are {torch.cuda.device_count()} GPUs")
    if wanted != "auto":
        return int(wanted)
    return 1 if on_gpu else min(_cores(), _MOST_PROCESSES)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Translators in processes of their own; a window is dealt out so that all have about the same work.

    On CPUs each process computes with one thread, which costs less than many threads that wait for each other at every
    small product.

    Args:
        make: makes the translator of worker k; it must pickle if the processes are no copies.
        count: number of processes.
        fork: whether they are copies of this one (only if `CAN_COPY`), which share its memory; it must not have
            computed with more than one thread before.
    """

    def __init__(self, make: Callable[[int], Translator], count: int, *, fork: bool) -> None:
        context: Any = multiprocessing.get_context("fork" if fork else "spawn")
        self._connections: list[Connection] = []
        self._processes = []
        threads = max(1, _cores() // count)
        for k in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(make, k, threads, there, [*self._connections, here]))
            process.daemon = True
            process.start()
            there.close()
            self._connections.append(here)
            self._processes.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.terminate()
            process.join()

    def translate_batch(
        self, lines: Sequence[str], constraints: Sequence[Constraints] | None, numbers: Sequence[int]
    ) -> list[Translation]:
        """As `Translator.translate_batch`, in all processes at once.

        Raises:
            GNMTError: as the translators raise it.
            OSError: a process has ended, for example because the system had no memory left.
        """
        order = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
        shares = [order[k :: len(self._connections)] for k in range(len(self._connections))]
        for k, share in enumerate(shares):
            demands = [constraints[i] for i in share] if constraints else None
            self._exchange(k, ([lines[i] for i in share], demands, [numbers[i] for i in share]))
        answers = [self._exchange(k) for k in range(len(shares))]
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        found = {
            i: translation
            for share, answer in zip(shares, answers, strict=True)
            for i, translation in zip(share, answer, strict=True)
        }
        return [found[i] for i in range(len(lines))]

    def _exchange(self, k: int, message: object = None) -> Any:
        """Send a message to process k, or receive its answer."""
        try:
            return self._connections[k].recv() if message is None else self._connections[k].send(message)
        except (EOFError, OSError):
            self._processes[k].join()
            raise OSError(f"a worker process ended with status {self._processes[k].exitcode}") from None


def _work(
    make: Callable[[int], Translator], k: int, threads: int, connection: Connection, others: list[Connection]
) -> None:
    """Answer windows until the other end is closed; an interrupt is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()
    torch.set_num_threads(threads)
    translator, failure = _try(lambda: make(k))
    while True:
        try:
            lines, constraints, numbers = connection.recv()
        except (EOFError, OSError):  # the parent has ended
            return
        if translator is not None:
            answer, failure = _try(functools.partial(translator.translate_batch, lines, constraints, numbers))
        try:
            connection.send(failure or answer)
        except OSError:
            return


def _try(call: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """What a call returns, or the error that the parent process shall raise."""
    try:
        return call(), None
    except (GNMTError, FloatingPointError, MemoryError, OSError, RuntimeError) as error:
        return None, error
