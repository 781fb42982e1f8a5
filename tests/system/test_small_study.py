"""A very small study runs to its report, goes on where it was stopped, and reports what it measured."""

import csv
import json

import pytest

from gnmt.config import CorpusConfig
from gnmt.study.claims import CLAIMS
from gnmt.study.report import write_report
from gnmt.study.results import Results
from gnmt.study.runner import run_study
from gnmt.study.settings import StudyConfig

VERDICTS = ("holds", "does not hold", "is not decided")


@pytest.fixture(name="config")
def _config(corpus):
    return StudyConfig(
        CorpusConfig(str(corpus / "train.{lang}")),
        CorpusConfig(str(corpus / "validation.{lang}")),
        cells=("lstm",),
        depths=(1, 8),
        width=8,
        vocab_size=320,
        tokens_per_batch=300,
        learning_rates=(1e-3, 1e-2),
        search_updates=2,
        updates=4,
        side_updates=2,
        seeds=(1, 2),
        side_seeds=(1,),
        init_ranges=(0.08,),
    )


def test_a_study_runs_continues_and_reports(config, tmp_path, monkeypatch):
    folder = tmp_path / "study"
    fake = {"milliseconds": 1.0, "mebibytes": 2.0, "parameters": 3}
    monkeypatch.setattr("gnmt.study.runner.measure", lambda network: fake)  # measured in tests/unit/test_cost.py
    results = run_study(config, folder, workers=1)
    path = folder / "runs.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5]) + lines[5][:20])
    again = run_study(config, folder, workers=1)
    assert again.records.keys() == results.records.keys()
    for key, record in results.records.items():  # bit for bit, whichever process trained it
        assert without_time(again.records[key]) == without_time(record)
    write_report(config, Results(folder, config), folder, "the command")
    report = (folder / "report.md").read_text()
    assert sum(report.count(f"**{verdict}**") for verdict in VERDICTS) == len(CLAIMS)
    for claim in CLAIMS:
        assert claim.text in report
    with (folder / "layers.csv").open() as file:
        rows = list(csv.DictReader(file))
    deep = [row for row in rows if row["depth"] == "8" and row["side"] == "encoder" and row["when"] == "start"]
    assert {row["layer"] for row in deep} == {str(number) for number in range(1, 9)}
    assert all(float(row["output_gradient"]) > 0 for row in deep)
    pictures = [line.partition("](")[2].rstrip(")") for line in report.splitlines() if line.startswith("![")]
    assert len(pictures) == 8
    for name in pictures:
        assert (folder / name).read_bytes().startswith(b"\x89PNG")


def without_time(record):
    return json.dumps({key: value for key, value in record.items() if key != "seconds"})
