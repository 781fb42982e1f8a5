"""Going on where an interrupted run stopped: with the same options, behind the last line that all outputs have."""

import argparse
import json
import logging
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnmt.checkpoint import Model
from gnmt.errors import DataError
from gnmt.translation.streams import is_special, partial
from gnmt.translation.writer import output_files

logger = logging.getLogger("translate")

# What may differ when a run goes on: it changes nothing in the lines that are written.
_FREE = (
    *("input", "constraints", "output", "resume_output", "attention_plot", "report_mismatch", "quiet", "verbose"),
    *("batch_size", "batch_type", "device", "devices"),
)


class Resumable:
    """The output files of a run, and beside the translations a note of the options that they are written with.

    Args:
        options: the parsed command line.
        models: what translates.
        precision: of the models' products.
    """

    def __init__(self, options: argparse.Namespace, models: Sequence[Model], precision: str) -> None:
        self._resume = options.resume_output
        self._outputs = [(Path(name), lines) for name, lines in output_files(options) if name != "-"]
        output, files = Path(options.output), (options.input, options.output)
        self._note = output.with_name(output.name + ".part.options")
        is_possible = "-" not in files and Path(options.input).is_file() and not is_special(output)
        self._settings = _settings(options, models, precision) if is_possible else None

    def wanted(self, lines: range) -> range:
        """Those of some input lines that are not in the outputs yet; what was written of one of them is cut off.

        From now on the note says how the outputs are written.

        Raises:
            DataError: the outputs are complete already, have more lines, or were begun with other settings.
        """
        if self._settings is None:
            return lines
        done = self._lines_done(self._settings) if self._resume else 0
        if done > len(lines):
            part = partial(self._outputs[0][0])
            raise DataError(f"{part} has {done} lines, more than the {len(lines)} of the input; delete it")
        if done:
            logger.warning("resumed behind line %d", lines.start + done)
        self._note.write_text(json.dumps(self._settings, indent=2) + "\n", encoding="utf-8")
        return lines[done:]

    def end(self) -> None:
        """Remove the note: the outputs are complete."""
        if self._settings is not None:
            self._note.unlink(missing_ok=True)

    def _lines_done(self, settings: dict[str, Any]) -> int:
        if complete := [path for path, _ in self._outputs if path.exists() and not partial(path).exists()]:
            raise DataError(f"{complete[0]} is complete, there is nothing to resume; delete it to translate again")
        if not all(partial(path).exists() for path, _ in self._outputs):
            return 0
        self._check(settings)
        done = min(_whole_lines(partial(path)) // lines_each for path, lines_each in self._outputs)
        for path, lines_each in self._outputs:
            _cut(partial(path), done * lines_each)
        return done

    def _check(self, settings: dict[str, Any]) -> None:
        part = partial(self._outputs[0][0])
        try:
            before = json.loads(self._note.read_text(encoding="utf-8"))
            names = sorted({*before, *settings})
        except (OSError, ValueError, TypeError):
            raise DataError(
                f"{self._note} cannot be read, so nobody knows how {part} was made; delete {part}"
            ) from None
        for name in names:
            if before.get(name) != (now := settings.get(name)):
                raise DataError(
                    f"{part} was begun with {name} {before.get(name)!r}, now it is {now!r}: use the options of "
                    "then, or delete it to translate again"
                )


def _settings(options: argparse.Namespace, models: Sequence[Model], precision: str) -> dict[str, Any]:
    """All that decides what is written: options, the models' content, the files that are read and their sizes."""
    read = [Path(path) for path in (options.input, options.constraints) if path]
    found = {name: value for name, value in vars(options).items() if name not in _FREE} | {
        "model": [_checksum(model) for model in models],
        "precision": precision,
        "files": [[str(path.resolve()), path.stat().st_size] for path in read],
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
    with path.open("rb") as file:
        return sum(line.endswith(b"\n") for line in file)


def _cut(path: Path, lines: int) -> None:
    with path.open("r+b") as file:
        for _ in range(lines):
            file.readline()
        file.truncate(file.tell())
