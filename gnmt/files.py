"""Files and folders that appear under their name only when they are whole."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from gnmt.errors import ConfigError

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


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a folder, which is made if need be; the lock ends with the process at the latest.

    Raises:
        ConfigError: another process has it.
    """
    import fcntl  # not on every system, and not needed for translating

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{folder} is in use by another process; wait for it or name another folder") from None
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
