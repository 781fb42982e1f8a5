"""Files and folders that appear under their name only when they are whole."""

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gnmt.errors import ConfigError

logger = logging.getLogger(__name__)

LOCK = ".lock"


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a name to write to; the file takes the place of `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def lock(file: IO[str], *, wait: bool = False) -> bool:
    """Lock an open file against other processes that do the same; the lock ends when the file is closed.

    Systems and file systems without locks exist: there a warning says so, and nobody is kept out.

    Returns:
        whether this process has the lock; False only if it should not wait and another process has it.
    """
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError) as error:
        reason = getattr(error, "strerror", None) or error
        logger.warning("%s cannot be locked (%s): let no other process write here", file.name, reason)
    return True


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made if need be.

    Raises:
        ConfigError: another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        if not lock(file):
            raise ConfigError(f"{folder} is in use by another process; wait for it or name another folder")
        yield


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill; it takes the place of `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    old = partial.with_name(partial.name + "-old")
    try:
        yield partial
        partial.chmod(0o755)
        if path.exists():
            path.replace(old)
        partial.replace(path)
    except BaseException:
        if old.exists() and not path.exists():
            old.replace(path)
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)
