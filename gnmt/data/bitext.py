"""Corpora of any kind -> a data set of sentence pairs with the string columns `source` and `target`."""

import hashlib
import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import datasets

from gnmt.config import CorpusConfig
from gnmt.errors import DataError
from gnmt.lines import read_lines

logger = logging.getLogger(__name__)

Dataset: TypeAlias = datasets.Dataset
Pair = dict[str, str | None]

_FEATURES = datasets.Features({"source": datasets.Value("string"), "target": datasets.Value("string")})
# Part of the cache's key: raise it when a change to the readers gives other pairs for the same files.
_CACHE_FORMAT = 1
_TEXT_SUFFIXES = (".tsv", ".jsonl", ".json", ".parquet")


class Columns(NamedTuple):
    """Where a record keeps its two sides: in columns of its own, or inside one `translation` column."""

    source: str
    target: str
    nested: bool

    def pair(self, record: Mapping[str, Any]) -> Pair:
        """The two sides of a record; None for what is missing or no string."""
        fields = record.get("translation") if self.nested else record
        sides = (fields.get(name) if isinstance(fields, Mapping) else None for name in (self.source, self.target))
        source, target = (side if isinstance(side, str) and _is_unicode(side) else None for side in sides)
        return {"source": source, "target": target}


def _is_unicode(text: str) -> bool:
    """Whether a text can be written down; JSON can hold halves of surrogate pairs, which cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def hide_progress_bars() -> None:
    """Keep the bars of `datasets` out of a log file."""
    datasets.disable_progress_bars()


def load_bitext(corpus: CorpusConfig, source_lang: str, target_lang: str) -> Dataset:
    """Read a corpus completely; nothing is filtered but records that lack a side, and these are counted and logged.

    Text, TSV and JSON lines are read once and kept in the cache of `datasets` under a digest of their content.

    Raises:
        DataError: files are missing or empty, sides differ in length, columns or languages are not there.
    """
    languages = (source_lang, target_lang)
    if "{lang}" in corpus.path or corpus.target_path:
        target = corpus.target_path or corpus.path
        files = tuple(path.replace("{lang}", lang) for path, lang in zip((corpus.path, target), languages, strict=True))
        pairs = _from_generator(_read_aligned, files)
    elif _suffix(corpus.path) == ".tsv":
        pairs = _from_generator(_read_tsv, (corpus.path,), corpus=corpus, languages=languages)
    elif _suffix(corpus.path) in (".jsonl", ".json"):
        pairs = _from_generator(_read_jsonl, (corpus.path,), corpus=corpus, languages=languages)
    else:
        pairs = _from_table(corpus, languages)
    kept = pairs.filter(_is_complete, input_columns=["source", "target"])
    if missing := len(pairs) - len(kept):
        logger.warning("%s: %d of %d records dropped: a side is missing or no text", corpus.path, missing, len(pairs))
    if not len(kept):
        raise DataError(f"{corpus.path} holds no sentence pairs; check the path and the columns")
    return kept


def _suffix(path: str) -> str:
    return Path(path.removesuffix(".gz")).suffix


def _is_complete(source: str | None, target: str | None) -> bool:
    return source is not None and target is not None


def _from_generator(read: Callable[..., Iterator[Pair]], files: tuple[str, ...], **options: Any) -> Dataset:
    digests = [_digest(path) for path in files]
    arguments = {"read": read, "files": files, "options": options}
    fingerprint = hashlib.sha256(
        repr((_CACHE_FORMAT, read.__name__, digests, sorted(options.items()))).encode()
    ).hexdigest()[:32]
    try:
        dataset = datasets.Dataset.from_generator(
            _read_some, features=_FEATURES, gen_kwargs=arguments, fingerprint=fingerprint
        )
    except datasets.exceptions.DatasetGenerationError as error:
        if isinstance(error.__cause__, DataError):
            raise error.__cause__ from None
        raise
    assert isinstance(dataset, datasets.Dataset)
    return dataset


def _read_some(read: Callable[..., Iterator[Pair]], files: tuple[str, ...], options: dict[str, Any]) -> Iterator[Pair]:
    is_empty = True
    for pair in read(files, **options):
        is_empty = False
        yield pair
    if is_empty:
        raise DataError(f"{' and '.join(files)}: no sentence pairs in it; check the path (data.*.path of a run)")


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; check the path (data.*.path of a run)") from None


def _read_aligned(files: tuple[str, str]) -> Iterator[Pair]:
    count = 0
    sides = itertools.zip_longest(*map(read_lines, files))
    for count, (source, target) in enumerate(sides, start=1):
        if source is None or target is None:
            longer = count + sum(1 for _ in sides)
            counts = (count - 1, longer) if source is None else (longer, count - 1)
            raise DataError(
                f"{files[0]} has {counts[0]} lines and {files[1]} has {counts[1]}: "
                "line k of one must be the translation of line k of the other; find what is missing"
            )
        yield {"source": source, "target": target}


def _read_tsv(files: tuple[str], corpus: CorpusConfig, languages: tuple[str, str]) -> Iterator[Pair]:
    lines = enumerate(read_lines(files[0]), start=1)
    columns = [0, 1]
    if corpus.source_column is not None:
        names = next(lines, (0, ""))[1].split("\t")
        found = find_columns(dict.fromkeys(names), corpus, languages)
        columns = [names.index(found.source), names.index(found.target)]
    for number, line in lines:
        cells = line.split("\t")
        if len(cells) <= max(columns):
            raise DataError(
                f"{files[0]}: line {number} has {len(cells)} tab-separated columns, "
                f"expected at least {max(columns) + 1}"
            )
        yield {"source": cells[columns[0]], "target": cells[columns[1]]}


def _read_jsonl(files: tuple[str], corpus: CorpusConfig, languages: tuple[str, str]) -> Iterator[Pair]:
    columns: Columns | None = None
    for number, line in enumerate(read_lines(files[0]), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            raise DataError(f"{files[0]}: line {number} is no JSON object (expected one object per line)") from None
        if not isinstance(record, dict):
            raise DataError(f"{files[0]}: line {number} is no JSON object (expected one object per line)")
        columns = columns or find_columns(record, corpus, languages)
        yield columns.pair(record)


def _from_table(corpus: CorpusConfig, languages: tuple[str, str]) -> Dataset:
    """Read Parquet files or a hub data set, whose columns are known before any row is read."""
    if Path(corpus.path).is_dir():
        raise DataError(
            f"corpus {corpus.path} is a folder; name a file, or a pattern such as {corpus.path}/train.{{lang}}"
        )
    try:
        if _suffix(corpus.path) == ".parquet":
            table = datasets.load_dataset("parquet", data_files=corpus.path, split="train")
        else:
            table = datasets.load_dataset(
                corpus.path, corpus.hub_config, split=corpus.split or "train", revision=corpus.revision
            )
    except Exception as error:  # the library raises errors of many kinds for what cannot be found or read
        reason = str(error).strip().splitlines()[0]
        kinds = f"text files with {{lang}} in their name, {', '.join(_TEXT_SUFFIXES)} files, hub ids"
        raise DataError(f"cannot load corpus {corpus.path!r}: {reason} (understood: {kinds})") from None
    columns = find_columns(table.features, corpus, languages)
    return table.map(columns.pair, remove_columns=table.column_names, features=_FEATURES)


def find_columns(fields: Mapping[str, Any], corpus: CorpusConfig, languages: tuple[str, str]) -> Columns:
    """Find the two sides among a record's fields, by the corpus' column names or else by language.

    Args:
        fields: column names; the value under `translation` may be a mapping with one entry per language.
        corpus: names the columns, or leaves it to the languages.
        languages: source and target language.

    Raises:
        DataError: they are not there; the message lists what is.
    """
    source, target = corpus.source_column or languages[0], corpus.target_column or languages[1]
    nested = fields.get("translation")
    inner = tuple(getattr(nested, "languages", nested if isinstance(nested, Mapping) else ()))
    if {source, target} <= set(inner):
        return Columns(source, target, nested=True)
    if {source, target} <= set(fields):
        return Columns(source, target, nested=False)
    found = f"columns {', '.join(fields)}" + (f"; languages {', '.join(inner)}" if inner else "")
    raise DataError(
        f"{corpus.path}: no columns {source!r} and {target!r} (found: {found}); "
        "set source_lang and target_lang, or source_column and target_column"
    )
