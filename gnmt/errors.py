"""Every error a user can meet. Messages are one line: what was found, what was expected, what to do."""

import os
import sys
from collections.abc import Callable

# What torch says on CPUs, on devices and in cuBLAS or cuDNN.
_OUT_OF_MEMORY = ("allocate memory", "out of memory", "STATUS_ALLOC_FAILED")


class GNMTError(Exception):
    """Base of all errors that are the input's fault; the programs print it in one line and exit with status 2."""


class ConfigError(GNMTError):
    """A setting is unknown, out of range, or contradicts another one."""


class DataError(GNMTError):
    """A text or corpus cannot be used as it is; the message names file and line where there is one."""


class CheckpointError(GNMTError):
    """A model folder or checkpoint is missing, incomplete, damaged or of another kind."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error means that the machine or its device has no memory left, in Python's words or in torch's."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def run_program(main: Callable[[], int]) -> int:
    """Call a program's main function; return its status, 2 with one line for bad input, 130 if interrupted."""
    if sys.stderr is None:  # closed: messages must not go to standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        return main()
    except GNMTError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
