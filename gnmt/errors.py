"""Every error a user can meet. Messages are one line: what was found, what was expected, what to do."""

import os
import sys
from collections.abc import Callable


class GNMTError(Exception):
    """Base of all errors that are the input's fault; the programs print it in one line and exit with status 2."""


class ConfigError(GNMTError):
    """A setting is unknown, out of range, or contradicts another one."""


class DataError(GNMTError):
    """A text or corpus cannot be used as it is; the message names file and line where there is one."""


class CheckpointError(GNMTError):
    """A model folder or checkpoint is missing, incomplete, damaged or of another kind."""


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
