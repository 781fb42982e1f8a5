"""The line contract, in one place for training, translation and scoring.

LF ends a line and nothing else does; a CR right before LF is dropped; a last line without LF counts; text is UTF-8; a
byte order mark at the very start is dropped.
"""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from gnmt.errors import DataError
from gnmt.files import new_file

_READ_SIZE = 1 << 20
_BOM = b"\xef\xbb\xbf"


def read_blocks(stream: BinaryIO, name: str) -> Iterator[list[str]]:
    """Yield the lines of a stream as they arrive: each block holds what one read completed, and is never empty.

    A pipe that delivers one line at a time is answered line by line; a file comes in blocks of about 1 MiB.

    Args:
        stream: raw (unbuffered) or with `read1`, so that a read returns what there is and waits only for nothing.
        name: for messages.

    Raises:
        DataError: a line is not UTF-8; the lines before it have been yielded.
    """
    number, rest, at_start = 0, [], True
    while chunk := _read(stream, name):
        if at_start:
            while len(chunk) < len(_BOM) and _BOM.startswith(chunk) and (more := _read(stream, name)):
                chunk += more
            chunk, at_start = chunk.removeprefix(_BOM), False
        head, found, tail = chunk.rpartition(b"\n")
        if not found:
            rest.append(chunk)
            continue
        rest.append(head)
        yield from _decoded(b"".join(rest).split(b"\n"), name, number)
        number += head.count(b"\n") + 1
        rest = [tail] if tail else []
    if any(rest):
        yield from _decoded(b"".join(rest).split(b"\n"), name, number)


def _read(stream: BinaryIO, name: str) -> bytes:
    try:
        return stream.read1(_READ_SIZE) if isinstance(stream, io.BufferedIOBase) else stream.read(_READ_SIZE)
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(name, error) from None


def _unreadable(name: str | Path, error: Exception) -> DataError:
    return DataError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}")


def _decoded(raw_lines: list[bytes], name: str, number: int) -> Iterator[list[str]]:
    """Yield the decoded lines as one block; at a line that is not UTF-8, yield those before it and raise."""
    lines: list[str] = []
    for raw in raw_lines:
        try:
            lines.append(raw.removesuffix(b"\r").decode("utf-8"))
        except UnicodeDecodeError as error:
            if lines:
                yield lines
            raise DataError(
                f"{name}: line {number + len(lines) + 1} is not UTF-8 (byte 0x{raw[error.start]:02X} at offset "
                f"{error.start} of the line): convert the file to UTF-8"
            ) from None
    yield lines


def open_bytes(path: str | Path | int) -> BinaryIO:
    """Open a file (or a descriptor) for `read_blocks`; one whose name ends in `.gz` is decompressed.

    Raises:
        DataError: it cannot be opened.
    """
    try:
        if isinstance(path, int) or not str(path).endswith(".gz"):
            return open(path, "rb", buffering=0)
        return gzip.open(path, "rb")  # type: ignore[return-value]
    except OSError as error:
        raise _unreadable(str(path), error) from None


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a text file.

    Raises:
        DataError: the file cannot be read, or is not UTF-8.
    """
    with open_bytes(path) as stream:
        for block in read_blocks(stream, str(path)):
            yield from block


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines to a file that appears under its name only when it is whole."""
    with new_file(Path(path)) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
