"""Where lines come from and go to: standard streams, files that appear when they are complete, interrupted files."""

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from gnmt.errors import ConfigError, DataError
from gnmt.lines import open_bytes


@contextlib.contextmanager
def open_input(path: str) -> Iterator[BinaryIO]:
    """Open a file or, for `-`, standard input; a read waits only for nothing.

    Raises:
        DataError: the file cannot be opened.
    """
    if path == "-":
        os.set_blocking(0, True)
    with open_bytes(0 if path == "-" else path) as stream:
        yield stream


@contextlib.contextmanager
def open_output(path: str, *, append: bool = False) -> Iterator[BinaryIO]:
    """Standard output, or a file that gets its name when it is complete; until then, what is done stands in FILE.part.

    Something that exists and is no regular file (a link, a pipe, a device) is written directly.

    Raises:
        ConfigError: the file cannot be written.
    """
    output = Path(path)
    if path == "-":
        yield sys.stdout.buffer
        return
    written = output if is_special(output) else partial(output)
    try:
        stream = written.open("ab" if append else "wb")
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror}") from None
    try:
        with stream:
            yield stream
    except BaseException:
        if written != output and written.stat().st_size == 0:
            written.unlink()  # nothing is lost, and nothing has to be continued
        raise
    if written != output:
        written.replace(output)


def is_special(output: Path) -> bool:
    """Whether an output exists and is no regular file (a link, a pipe, a device): it is written directly."""
    return output.is_symlink() or (output.exists() and not output.is_file())


def partial(output: Path) -> Path:
    """The name of an output that is not complete yet."""
    return output.with_name(output.name + ".part")


def note_of(output: Path) -> Path:
    """Where it says with which options an output that is not complete yet is written."""
    return output.with_name(output.name + ".part.options")


def is_regular(stream: BinaryIO) -> bool:
    """Whether the stream is a file that can be read twice."""
    return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)


def check_inputs(inputs: Iterable[str]) -> None:
    """Refuse inputs that are not there, `-` for standard input, before any work is done.

    Raises:
        DataError: the first of them.
        ConfigError: standard input is closed.
    """
    for path in inputs:
        if path == "-" and sys.stdin is None:
            raise ConfigError("standard input is closed; open it, or name a file with --input")
        if path != "-" and not Path(path).exists():
            raise DataError(f"cannot read {path}: No such file or directory")


def check_outputs(outputs: Sequence[str], inputs: Iterable[str], *, resume: bool) -> None:
    """Refuse outputs that would destroy something, or could not be written, before any work is done.

    Args:
        outputs: files to be written, `-` for standard output.
        inputs: files that are read, `-` for standard input.
        resume: whether an interrupted output is to be continued, and must not be refused.

    Raises:
        ConfigError: the first of the outputs that cannot be used, and why.
    """
    inputs = list(inputs)
    named = [Path(output) for output in outputs if output != "-"]
    if "-" in outputs and sys.stdout is None:
        raise ConfigError("standard output is closed; open it, or name a file with --output")
    if len(outputs) > len(named) + 1:
        raise ConfigError("two outputs to standard output; name a file for one of them")
    is_file = "-" in outputs and stat.S_ISREG(os.fstat(1).st_mode)
    if is_file and (same := [path for path in inputs if _is_file(path, os.fstat(1))]):
        side = "standard input" if same[0] == "-" else same[0]
        raise ConfigError(f"{side} is read and standard output is the same file; write to another one")
    for output in named:
        if output.is_dir():
            raise ConfigError(f"output {output} is a folder; name a file")
        if not output.parent.is_dir():
            raise ConfigError(f"cannot write {output}: there is no folder {output.parent}")
        for path in inputs:
            for written in (output, partial(output)):
                if _same_file(path, written):
                    raise ConfigError(
                        f"{path} is read and {written} is written, but they are the same file; name another output"
                    )
    names = [name for output in named for name in (output, partial(output))]
    for k, name in enumerate(names):
        if any(name.absolute() == other.absolute() or _same_file(str(name), other) for other in names[:k]):
            raise ConfigError(f"{name} is to be written twice; name different files")
    for output in named:
        if partial(output).exists() and not resume:
            raise ConfigError(
                f"{partial(output)} exists, from a run that was interrupted or is still going on: continue it with "
                "--resume-output, or delete it"
            )


def _same_file(first: str, second: Path) -> bool:
    with contextlib.suppress(OSError):
        return _is_file(first, second.stat())
    return False


def _is_file(path: str, found: os.stat_result) -> bool:
    """Whether the file of this name, or standard input, is the one that was found."""
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(0) if path == "-" else Path(path).stat(), found)
    return False


def abandon_stdout() -> None:
    """Let the interpreter's last flush go nowhere: what could not be written now cannot be written then."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
