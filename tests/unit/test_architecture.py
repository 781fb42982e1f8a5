"""The table of the rooms, enforced: imports point downwards, and each library has one home."""

import ast
import re
import subprocess
import sys

import pytest
from conftest import ROOT

LEVELS = {
    "errors": 0, "version": 0, "checks": 0.2, "config": 0.5,
    "files": 0.5, "lines": 1, "tokenizer": 1, "metrics": 1, "nn": 1, "optim": 1,
    "data": 2, "search": 2, "inference": 2.5, "segments": 1, "phrases": 2.5,
    "checkpoint": 3, "diagnostics": 3, "engine": 3, "alignment": 1, "translator": 3.5, "study": 3.5,
    "training": 4, "translation": 4,
    "__init__": 5,
}  # fmt: skip
HOMES = {
    "lightning": {"training"},
    "jsonargparse": {"training"},
    "yaml": {"training"},
    "datasets": {"data"},
    "sentencepiece": {"tokenizer"},
    "sacrebleu": {"metrics"},
    "safetensors": {"checkpoint"},
    "matplotlib": {"diagnostics", "study", "translation"},
}
FILES = sorted((ROOT / "gnmt").rglob("*.py"))


def room(path):
    return path.relative_to(ROOT / "gnmt").parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_downwards_and_libraries_stay_at_home(path):
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "gnmt":
            target = rest[0] if rest else "__init__"
            assert target == room(path) or LEVELS[target] < LEVELS[room(path)], f"{path} imports {name}"
            assert not (room(path) in ("nn", "search", "inference") and target in ("tokenizer", "data")), (
                f"{path} imports {name}"
            )
        elif top in HOMES:
            assert room(path) in HOMES[top], f"{path} imports {name}"


@pytest.mark.parametrize("path", [*FILES, ROOT / "translate.py", ROOT / "train.py"], ids=lambda path: path.name)
def test_files_stay_short(path):
    assert len(path.read_text().splitlines()) <= 300


def rooms_in_the_map():
    """Rows of the table in gnmt/README.md: level, the files and folders of a row, what it says, libraries."""
    for line in (ROOT / "gnmt" / "README.md").read_text().splitlines():
        if re.match(r"\| \d", line):
            _, level, rooms, text, libraries, _ = map(str.strip, line.split("|"))
            yield int(level), re.findall(r"`([\w./]+)`", rooms), text, set(libraries.split(", "))


def test_the_map_names_every_module():
    named = set()
    for _, rooms, text, _ in rooms_in_the_map():
        for name in rooms:
            named |= {f"{name}{module}.py" for module in re.findall(r"`(\w+)`", text)} if name[-1] == "/" else {name}
    assert named == {path.relative_to(ROOT / "gnmt").as_posix() for path in FILES if not path.stem.startswith("__")}


def test_the_map_says_the_levels_and_the_homes_of_libraries():
    for level, rooms, _, libraries in rooms_in_the_map():
        for name in rooms:
            room = name.removesuffix("/").removesuffix(".py")
            assert level == int(LEVELS[room]), name
            assert libraries & HOMES.keys() == {library for library, homes in HOMES.items() if room in homes}, name


def test_importing_the_library_is_light():
    code = "import sys, gnmt; print([name for name in ('lightning', 'datasets', 'sacrebleu') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout.strip() == "[]"
