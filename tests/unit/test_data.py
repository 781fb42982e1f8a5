"""Corpora of every kind, examples and batches."""

import gzip
import json
import logging

import datasets
import numpy as np
import pytest
from conftest import toy_pairs

from gnmt.config import BatchConfig, CorpusConfig
from gnmt.data.batching import ROW_MULTIPLE, EvaluationBatches, TrainingBatches, plan_batches
from gnmt.data.bitext import load_bitext
from gnmt.data.examples import encode_bitext, filter_by_length, lengths
from gnmt.data.padding import collate
from gnmt.errors import DataError

PAIRS = [
    ("Hello.", "Hallo."),
    ('He said "hi"', 'Er sagte "hi"'),
    ("NA", "null"),
    ("a\rb", "a\u2028b"),
    ("See you.", ""),
]


def load(path, **options):
    return load_bitext(CorpusConfig(str(path), **options), "en", "de")


def rows(dataset):
    return list(zip(dataset["source"], dataset["target"], strict=True))


def write_sides(folder, sides, name="t.{}"):
    for lang, lines in sides.items():
        (folder / name.format(lang)).write_bytes("".join(line + "\n" for line in lines).encode())


def test_aligned_files_keep_line_k_with_line_k(tmp_path):
    write_sides(tmp_path, {"en": [p[0] for p in PAIRS], "de": [p[1] for p in PAIRS]})
    assert rows(load(tmp_path / "t.{lang}")) == PAIRS
    assert rows(load(tmp_path / "t.en", target_path=str(tmp_path / "t.de"))) == PAIRS
    for lang in ("en", "de"):
        packed = tmp_path / f"t.{lang}.gz"
        packed.write_bytes(gzip.compress((tmp_path / f"t.{lang}").read_bytes()))
    assert rows(load(tmp_path / "t.{lang}.gz")) == PAIRS


def test_a_changed_file_is_read_again(tmp_path):
    write_sides(tmp_path, {"en": ["a"], "de": ["b"]})
    assert rows(load(tmp_path / "t.{lang}")) == [("a", "b")]
    write_sides(tmp_path, {"en": ["a"], "de": ["c"]})
    assert rows(load(tmp_path / "t.{lang}")) == [("a", "c")]


@pytest.mark.parametrize(("en", "de"), [(4, 3), (3, 5), (0, 2)])
def test_unequal_files_are_refused_with_both_counts(tmp_path, en, de):
    write_sides(tmp_path, {"en": ["x"] * en, "de": ["y"] * de})
    with pytest.raises(DataError, match=rf"t\.en has {en} lines and .*t\.de has {de}"):
        load(tmp_path / "t.{lang}")


def test_tsv_has_no_quotes_and_no_missing_values(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("".join(f"{s}\t{t}\textra\n" for s, t in PAIRS), newline="\n", encoding="utf-8")
    assert rows(load(path)) == PAIRS
    path.write_text("x\tde\ten\n1\tHallo\tHello\n")
    assert rows(load(path, source_column="en", target_column="de")) == [("Hello", "Hallo")]
    path.write_text("a\tb\nonly one\n")
    with pytest.raises(DataError, match="line 2 has 1 tab-separated columns"):
        load(path)


def records(layout):
    make = {
        "flat": lambda s, t: {"id": 1, "en": s, "de": t},
        "nested": lambda s, t: {"translation": {"de": t, "en": s}},
    }[layout]
    return [make(s, t) for s, t in PAIRS]


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_json_lines_and_parquet_in_both_layouts(tmp_path, layout):
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records(layout)))
    assert rows(load(path)) == PAIRS
    datasets.Dataset.from_list(records(layout)).to_parquet(tmp_path / "t.parquet")
    assert rows(load(tmp_path / "t.parquet")) == PAIRS


def test_a_hub_data_set_goes_through_the_same_loader(tmp_path, monkeypatch):
    """What the hub would give: `load_dataset` is asked with configuration, split and revision."""
    asked = {}

    def fake(path, name=None, *, split, revision):
        asked.update(path=path, name=name, split=split, revision=revision)
        return datasets.Dataset.from_list(
            records("nested"), features=datasets.Features({"translation": datasets.Translation(["de", "en"])})
        )

    monkeypatch.setattr(datasets, "load_dataset", fake)
    assert rows(load("wmt/wmt14", hub_config="de-en", split="validation", revision="abc")) == PAIRS
    assert asked == {"path": "wmt/wmt14", "name": "de-en", "split": "validation", "revision": "abc"}


def test_odd_records_are_dropped_and_counted(tmp_path, caplog):
    path = tmp_path / "t.jsonl"
    odd = [
        {"en": "a", "de": None},
        {"en": 7, "de": "b"},
        {"de": "c"},
        {"en": "\ud83d", "de": "d"},
        {"en": "x", "de": "y"},
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in [{"en": "a", "de": "b"}, *odd]))
    assert rows(load(path)) == [("a", "b"), ("x", "y")]
    assert "4 of 6 records dropped" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"src": "a", "tgt": "b"}\n', "found: columns src, tgt.*source_column"),
        ('{"translation": {"en-XX": "a", "de-DE": "b"}}\n', "languages en-XX, de-DE"),
        ('{"translation": 5}\n', "found: columns translation"),
        ('{"en": "a"\n', "line 1 is no JSON object"),
        ("[1]\n", "line 1 is no JSON object"),
        ("", "no sentence pairs"),
    ],
)
def test_wrong_json_lines_are_explained(tmp_path, content, message):
    path = tmp_path / "t.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        load(path)


def test_missing_files_and_unreachable_hub_ids_are_explained(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        load(tmp_path / "t.{lang}")
    with pytest.raises(DataError, match="cannot load corpus"):
        load("no-such-owner/no-such-corpus")


@pytest.fixture(name="examples")
def _examples(tmp_path, tokenizer):
    sides = zip(*toy_pairs(), strict=True)
    write_sides(tmp_path, dict(zip(("en", "de"), sides, strict=True)))
    return encode_bitext(load(tmp_path / "t.{lang}"), tokenizer)


def test_encoding_keeps_order_and_is_cached(examples, tmp_path, tokenizer):
    for row, (source, target) in zip(examples, toy_pairs(), strict=True):
        assert (tokenizer.decode(row["source"]), tokenizer.decode(row["target"])) == (source, target)
        assert (row["source_length"], row["target_length"]) == (len(row["source"]), len(row["target"]))
    again = encode_bitext(load(tmp_path / "t.{lang}"), tokenizer)
    assert again.cache_files == examples.cache_files
    assert examples.cache_files


def test_filter_counts_each_reason(tmp_path, tokenizer, caplog):
    sides = {"en": ["one", "", "x " * 40, "a b c d", "ok"], "de": ["eins", "b", "y", "x" * 60, "gut"]}
    write_sides(tmp_path, sides)
    examples = encode_bitext(load(tmp_path / "t.{lang}"), tokenizer)
    with caplog.at_level(logging.WARNING):
        kept = filter_by_length(examples, BatchConfig(100, max_length=70, max_length_ratio=1.5), "t")
    assert [tokenizer.decode(row["source"]) for row in kept] == ["one", "ok"]
    assert "3 of 5 pairs dropped: 1 empty on a side, 1 longer than 70 tokens, 1 length ratio over 1.5" in caplog.text
    with pytest.raises(DataError, match="no pair is left"):
        filter_by_length(examples, BatchConfig(2, max_length=2), "t")


def test_plan_is_a_pure_function_that_uses_every_example_once():
    rng = np.random.default_rng(3)
    source, target = rng.integers(1, 60, (2, 5000))
    target = np.minimum(source + target // 10, 70)
    plan = plan_batches(source, target, 1000, seed=1, epoch=0)
    assert sorted(np.concatenate(plan)) == list(range(5000))
    again = plan_batches(source, target, 1000, seed=1, epoch=0)
    assert all(map(np.array_equal, plan, again))
    for changed in (plan_batches(source, target, 1000, 2, 0), plan_batches(source, target, 1000, 1, 1)):
        assert sorted(map(len, changed)) == sorted(map(len, plan))
        assert [list(batch) for batch in changed] != [list(batch) for batch in plan]
    sizes = [len(batch) * (source[batch].max() + target[batch].max() + 2) / 2 for batch in plan]
    assert max(sizes) <= 1000
    assert sum(len(batch) % ROW_MULTIPLE != 0 for batch in plan if len(batch) > ROW_MULTIPLE) <= 1
    padded = sum(len(batch) * (target[batch].max() + 1) for batch in plan)
    assert padded < 1.05 * (target + 1).sum()


@pytest.mark.parametrize("budget", [341, 1000])
def test_a_jump_in_lengths_stays_within_the_budget(budget):
    lengths = np.array([10] * 90 + [150] * 5)
    plan = plan_batches(lengths, lengths, budget, 0, 0)
    assert max(len(batch) * (lengths[batch].max() + 1) for batch in plan) <= budget
    assert sorted(np.concatenate(plan)) == list(range(95))


def test_a_pair_longer_than_the_budget_stands_alone():
    plan = plan_batches(np.array([5, 500, 5]), np.array([5, 500, 5]), 100, 0, 0)
    assert sorted(map(len, plan)) == [1, 2]


def test_training_batches_go_on_where_they_were(examples):
    def positions(batches):
        seen = []
        for batch in batches:
            seen.append(batch.source.tolist())
            batches.batch_done()
        return seen

    reference = TrainingBatches(examples, 200, seed=3)
    epochs = [positions(reference), positions(reference)]
    assert epochs[0] != epochs[1]
    assert len(reference) == len(epochs[1])
    first = TrainingBatches(examples, 200, seed=3)
    iterator = iter(first)
    seen = [next(iterator).source.tolist() for _ in range(2)]
    first.batch_done()
    first.batch_done()
    next(iterator)  # has left the loader but is not done
    resumed = TrainingBatches(examples, 200, seed=3)
    resumed.load_state_dict(first.state_dict())
    assert seen + positions(resumed) == epochs[0]
    assert positions(resumed) == epochs[1]


def test_ranks_share_the_batches_evenly(examples):
    single = TrainingBatches(examples, 200, seed=3)
    ranks = [TrainingBatches(examples, 200, seed=3, rank=rank, world_size=2) for rank in range(2)]
    seen = [[str(batch.source.tolist()) for batch in batches] for batches in ranks]
    assert len(seen[0]) == len(seen[1]) == len(single) // 2
    assert not set(seen[0]) & set(seen[1])
    with pytest.raises(DataError, match="for 99 processes"):
        TrainingBatches(examples, 200, seed=3, rank=0, world_size=99)


def test_evaluation_leaves_no_example_out(examples):
    batches = EvaluationBatches(examples, 150)
    seen = [row[:length] for b in batches for row, length in zip(b.source.t().tolist(), b.source_lengths, strict=True)]
    assert sorted(seen) == sorted([*ids, 3] for ids in examples["source"])
    assert len(seen) == len(lengths(examples)[0]) == len(examples)


def test_collate_shifts_targets_and_marks_padding():
    batch = collate([[5, 6], [7]], [[8], [9, 10]])
    assert batch.source.tolist() == [[5, 7], [6, 3], [3, 0]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_input.tolist() == [[2, 2], [8, 9], [0, 10]]
    assert batch.target_output.tolist() == [[8, 9], [3, 10], [0, 3]]
    assert batch.target_mask.tolist() == [[True, True], [True, True], [False, True]]
