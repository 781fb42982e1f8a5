"""What a study has measured so far, kept in its folder line by line."""

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

from gnmt.errors import ConfigError
from gnmt.files import new_file
from gnmt.study.settings import StudyConfig

logger = logging.getLogger(__name__)


class Results:
    """`runs.jsonl`: one record a line, appended when it is there; a damaged line is left out and measured again.

    Args:
        folder: of the study.
        config: a folder keeps the results of one configuration only; `study.json` holds it.

    Raises:
        ConfigError: the folder holds another study.
    """

    def __init__(self, folder: Path, config: StudyConfig) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._path = folder, folder / "runs.jsonl"
        known, description = folder / "study.json", json.dumps(dataclasses.asdict(config), indent=2) + "\n"
        if known.exists() and known.read_bytes() != description.encode():
            raise ConfigError(f"{folder} holds a study of other settings; name another --output or delete it")
        self.records: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            self._read()
        with new_file(known) as partial:
            partial.write_text(description, encoding="utf-8")

    def _read(self) -> None:
        lines = self._path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                record = json.loads(line) if line else None
                if record is not None:
                    self.records[record["key"]] = record
            except (ValueError, TypeError, KeyError):
                logger.warning("%s: line %d is damaged; what it held is measured again", self._path, number)
        with new_file(self._path) as partial:
            text = "".join(json.dumps(record) + "\n" for record in self.records.values())
            partial.write_text(text, encoding="utf-8")

    def add(self, key: str, record: dict[str, Any]) -> None:
        """Keep a record."""
        self.records[key] = {"key": key, **record}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.records[key]) + "\n")

    def check_corpus(self, digest: str) -> None:
        """Keep the digest of the corpus, or compare it with the one that the results so far belong to.

        Raises:
            ConfigError: they belong to another corpus.
        """
        if "corpus" not in self.records:
            self.add("corpus", {"digest": digest})
        elif self.records["corpus"].get("digest") != digest:
            raise ConfigError(f"{self._folder} holds a study of another corpus or vocabulary; name another --output")
