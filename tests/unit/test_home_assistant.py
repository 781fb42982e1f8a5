"""The default corpus' builder, on a small wheel of our own."""

import hashlib
import json
import random
import sys
import zipfile

import pytest
from conftest import ROOT, assert_refused

sys.path.insert(0, str(ROOT / "data"))
import evaluate
import home_assistant as ha

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def catalogue(lang):
    """2,400 texts: templates, near-duplicates and everything that is to be dropped or cleaned."""
    rng = random.Random(0)
    word = {"en": "turn on", "de": "einschalten"}[lang]
    texts = {f"k{i}": f"{word} {''.join(rng.choices(LETTERS, k=8))} {{name}}" for i in range(2300)}
    texts |= {f"d{i}": f"{word.title()} phase L{i}!" for i in range(90)}
    odd = {
        "en": {"same": "Wi-Fi", "link": "See **[the docs]({url})** `now`", "lines": "One.\n\n- Two.", "number": "100 %",
               "plural": "{n, plural, one {a} other {b}}", "only": "not in German"},
        "de": {"same": "Wi-Fi", "link": "Siehe **[Anleitung]({url})** `jetzt`", "lines": "Eins.\n\n- Zwei.",
               "number": "100 Prozent", "plural": "{n, plural, one {c} other {d}}"},
    }  # fmt: skip
    return {"title": {"nested": odd[lang]}, **texts}


@pytest.fixture(name="cache")
def _cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir()
    with zipfile.ZipFile(folder / ha.WHEEL, "w") as archive:
        for lang in ("en", "de"):
            archive.writestr(f"homeassistant/components/x/translations/{lang}.json", json.dumps(catalogue(lang)))
    monkeypatch.setattr(ha, "WHEEL_SHA256", hashlib.sha256((folder / ha.WHEEL).read_bytes()).hexdigest())
    return folder


def build(cache, *arguments):
    folder = cache.parent / "corpus"
    assert ha.main(["--cache", str(cache), "--output", str(folder), *arguments]) == 0
    return folder


def sides(folder, name):
    return [(folder / f"{name}.{lang}").read_text().splitlines() for lang in ("en", "de")]


def test_splits_share_no_near_duplicate_on_either_side(cache):
    folder = build(cache)
    splits = {name: sides(folder, name) for name in ("train", "validation", "test")}
    assert [len(splits[name][0]) for name in ("validation", "test")] == [500, 500]
    for side in range(2):
        keys = [{ha.near_duplicate_key(text) for text in split[side]} for split in splits.values()]
        assert sum(map(len, keys)) == len(set.union(*keys))
    report = json.loads((folder / "report.json").read_text())
    assert report["pairs"] == {name: len(split[0]) for name, split in splits.items()}
    assert report["lines_with_placeholders"]["test"] == sum("{name}" in line for line in splits["test"][0])


def test_texts_are_cleaned_and_reasons_counted(cache):
    splits, report = ha.build(cache / ha.WHEEL, "de")
    pairs = {pair for rows in splits.values() for pair in rows}
    assert {("See the docs now", "Siehe Anleitung jetzt"), ("One.", "Eins."), ("Two.", "Zwei.")} <= pairs
    assert report["dropped_pairs"] == {"identical sides": 1, "no letters": 1, "plural forms": 1}


def test_building_again_changes_nothing_and_is_reproducible(cache):
    folder = build(cache)
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    (cache / ha.WHEEL).rename(cache / "elsewhere")
    build(cache)
    (cache / "elsewhere").rename(cache / ha.WHEEL)
    for path in folder.iterdir():
        path.unlink()
    build(cache)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first
    assert {path.name for path in cache.parent.iterdir()} == {"cache", "corpus"}


def test_an_unknown_language_lists_the_known_ones(cache):
    with pytest.raises(ha.ConfigError, match="no catalogue for language 'xx'; there are: de"):
        build(cache, "--target-lang", "xx")


def test_a_damaged_wheel_is_refused(cache):
    (cache / ha.WHEEL).write_bytes(b"half")
    with pytest.raises(ha.DataError, match="is damaged; delete it"):
        build(cache)


def test_a_folder_with_other_files_is_not_touched(cache):
    folder = cache.parent / "corpus"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    with pytest.raises(ha.DataError, match="holds files"):
        build(cache)
    assert (folder / "mine.txt").read_text() == "mine"


def test_without_network_and_cache_the_message_says_what_is_missing(run, tmp_path):
    """No index and an empty folder instead: what a machine without a network has."""
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}
    result = run("data/home_assistant.py", "--cache", tmp_path / "c", "--output", tmp_path / "o", **offline)
    message = result.stderr.decode().splitlines()[-1]
    assert result.returncode == 2
    assert "could not download homeassistant==2026.2.3" in message
    assert f"put {ha.WHEEL} into {tmp_path / 'c'}" in message
    assert not (tmp_path / "o").exists()


def test_evaluation_counts_surviving_placeholders_and_scores_copying():
    sources = ["Turn on {name} and {name}", "See {a}", "No placeholder"]
    hypotheses = ["{name} und {name} an", "Siehe {b}", "Kein Platzhalter"]
    assert evaluate.surviving_placeholders(sources, hypotheses) == (1, 2)
    text = evaluate.report(sources, hypotheses, hypotheses, "de")
    assert "| translated | 100.00 | 100.00 |" in text
    assert "in 1 of the 2 lines" in text
    assert "| See {a} | Siehe {b} | Siehe {b} |" in text


def test_mistakes_get_one_line(run):
    assert_refused(run("data/evaluate.py", "/nonexistent"), "cannot read")
