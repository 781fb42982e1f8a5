"""Files and folders that appear under their name only when they are whole."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a name to write to; the file takes the place of `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    yield partial
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder to fill; it takes the place of `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        yield partial
        partial.chmod(0o755)
        if path.exists():
            path.replace(partial.with_name(partial.name + "-old"))
        partial.replace(path)
    finally:
        for leftover in (partial, partial.with_name(partial.name + "-old")):
            shutil.rmtree(leftover, ignore_errors=True)
