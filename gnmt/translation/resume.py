"""Going on where an interrupted run stopped: with the same options, behind the last line that all outputs have."""

import argparse
import json
import logging
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from gnmt.checkpoint import Model
from gnmt.errors import ConfigError, DataError
from gnmt.files import lock
from gnmt.translation.ranks import Rank
from gnmt.translation.streams import is_special, note_of, partial
from gnmt.translation.writer import output_files

logger = logging.getLogger("translate")

# What may differ when a run goes on: it changes nothing in the lines that are written.
_FREE = (
    *("input", "constraints", "output", "resume_output", "attention_plot", "report_mismatch", "quiet", "verbose"),
    *("batch_size", "batch_type", "device", "devices"),
)


def noted_precision(options: argparse.Namespace) -> str:
    """The precision to compute with: that of the run that is continued, where the command line leaves it open."""
    if options.precision == "auto" and options.resume_output:
        before = _read_note(note_of(Path(options.output)))
        return str(before.get("precision", "auto"))
    return str(options.precision)


class Resumable:
    """The output files of a run, and beside the translations a note of the options that they are written with.

    While a run goes on its note is locked.

    Args:
        options: the parsed command line.
        rank: which part of the input is translated; one of several keeps its note until all parts are joined.
        models: what translates.
        precision: of the models' products.

    Raises:
        ConfigError: a run that reads or writes streams is to be continued.
    """

    def __init__(self, options: argparse.Namespace, rank: Rank, models: Sequence[Model], precision: str) -> None:
        self._resume, self._is_shared = options.resume_output, rank.world_size > 1
        self._outputs = [(Path(name), lines) for name, lines in output_files(options) if name != "-"]
        output = Path(options.output)
        self._note = note_of(output)
        read = [options.input, *([options.constraints] if options.constraints else [])]
        has_files = "-" not in (options.input, options.output) and all(Path(path).is_file() for path in read)
        is_possible = has_files and not any(is_special(path) for path, _ in self._outputs)
        if self._resume and not is_possible:
            raise ConfigError("--resume-output with pipes, links or devices, expected regular files to read and write")
        self._settings = _settings(options, read, models, precision) if is_possible else None

    def __enter__(self) -> Self:
        """Lock the outputs.

        Raises:
            ConfigError: another process writes them, or the note beside them cannot be written.
        """
        if self._settings is not None:
            try:
                self._file = self._note.open("a+", encoding="utf-8")
            except OSError as error:
                raise ConfigError(f"cannot write {self._note}: {error.strerror}") from None
            if not lock(self._file):
                self._file.close()
                raise ConfigError(f"{self._outputs[0][0]} is being written by another process; wait for it")
        return self

    def __exit__(self, *_: object) -> None:
        """Release the outputs; a note stays only beside something that is not complete."""
        if self._settings is not None:
            parts = [partial(path) for path, _ in self._outputs]
            if not any(part.exists() for part in parts) and not (self._is_shared and self._outputs[0][0].exists()):
                self._note.unlink(missing_ok=True)
            self._file.close()

    def wanted(self, lines: range) -> range:
        """Those of some input lines that are not in the outputs yet; what was written of one of them is cut off.

        Raises:
            DataError: the outputs are complete already, have more lines, or were begun with other settings.
        """
        done = self._lines_done(self._settings) if self._settings is not None and self._resume else 0
        if done > len(lines):
            part = partial(self._outputs[0][0])
            raise DataError(f"{part} has {done} lines, more than the {len(lines)} of the input; delete it")
        if done:
            logger.warning("resumed behind line %d", lines.start + done)
        return lines[done:]

    def begin(self) -> None:
        """Note how the outputs are written, before the first line is."""
        if self._settings is not None:
            self._file.truncate(0)
            self._file.write(json.dumps(self._settings, indent=2) + "\n")
            self._file.flush()

    def is_complete(self) -> bool:
        """Whether this is one of several ranks, and its part is complete already, written with the same settings.

        Raises:
            DataError: it was written with others.
        """
        if self._settings is None or not (self._is_shared and self._outputs[0][0].exists()):
            return False
        self._check(self._settings, self._outputs[0][0])
        return True

    def _lines_done(self, settings: dict[str, Any]) -> int:
        parts = [(partial(path), lines_each) for path, lines_each in self._outputs]
        if not any(part.exists() for part, _ in parts):
            if complete := [path for path, _ in self._outputs if path.exists()]:
                raise DataError(f"{complete[0]} is complete, there is nothing to resume; delete it to translate again")
            return 0
        self._check(settings, partial(self._outputs[0][0]))
        done = min(_whole_lines(part) // lines_each for part, lines_each in parts)
        for part, lines_each in parts:
            _cut(part, done * lines_each)
        return done

    def _check(self, settings: dict[str, Any], written: Path) -> None:
        before = _read_note(self._note)
        if not before:
            raise DataError(f"{self._note} does not say how {written} was made; delete {written} to translate again")
        if before.get("on_long") == "error" and settings["max_input_length"] >= before.get("max_input_length", 0):
            # A line that was too long ended the run, so nothing that is written depends on these.
            before |= {name: settings[name] for name in ("on_long", "max_input_length")}
        for name in sorted({*before, *settings}):
            if before.get(name) != (now := settings.get(name)):
                raise DataError(
                    f"{written} was begun with {name} {before.get(name)!r}, now it is {now!r}: use the options of "
                    "then, or delete it to translate again"
                )


def _read_note(note: Path) -> dict[str, Any]:
    """The settings in a note; none if it is missing or damaged."""
    try:
        found = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _settings(
    options: argparse.Namespace, read: Sequence[str], models: Sequence[Model], precision: str
) -> dict[str, Any]:
    """All that decides what is written: options, the models' content, the files that are read."""
    states = [(Path(path), Path(path).stat()) for path in read]
    found = {name: value for name, value in vars(options).items() if name not in _FREE} | {
        "model": [_checksum(model) for model in models],
        "precision": precision,
        "files": [[str(path.resolve()), state.st_size, state.st_mtime_ns] for path, state in states],
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))  # as it will be read again
    return plain


def _checksum(model: Model) -> int:
    """Of weights and vocabulary: models that were copied elsewhere are the same."""
    value = zlib.crc32(model.tokenizer.model)
    for parameter in model.network.parameters():
        value = zlib.crc32(parameter.detach().cpu().contiguous().numpy().data, value)
    return value


def _whole_lines(path: Path) -> int:
    """Lines of a file that end; 0 if it is missing."""
    if not path.exists():
        return 0
    with path.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file)


def _cut(path: Path, lines: int) -> None:
    if path.exists():
        with path.open("r+b") as file:
            for _ in range(lines):
                file.readline()
            file.truncate(file.tell())
