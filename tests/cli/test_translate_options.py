"""translate.py with all that it offers: formats, demands, long text, scoring, mistakes, any bytes at all."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import NUM_LINES, TEXT, assert_refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnmt.errors import DataError
from gnmt.translation.job import Job
from gnmt.translation.options import parse_arguments


def test_json_has_one_object_for_each_line(translate):
    result = translate("--format", "json", "-n", "2")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["line"] for row in rows] == list(range(1, NUM_LINES + 1))
    plain = translate().stdout.decode().splitlines()
    assert [row["translation"] for row in rows] == plain
    for row in rows:
        assert row["n_best"][0]["translation"] == row["translation"]
        assert all(i >= 0 and 0 <= j < len(row["translation"].split()) for i, j in row["alignment"])
    assert rows[1]["tokens"] == rows[4]["tokens"] == rows[1]["warnings"] == []


def test_alignments_are_in_range_and_plots_are_drawn(translate, tmp_path):
    links, plots = tmp_path / "links", tmp_path / "plots"
    output = translate("--alignments", links, "--attention-plot", plots).stdout.decode().splitlines()
    rows = links.read_text().splitlines()
    assert len(rows) == NUM_LINES
    for source, target, row in zip(TEXT.decode().splitlines(), output, rows, strict=True):
        for i, j in (link.split("-") for link in row.split()):
            assert int(i) < len(source.split())
            assert int(j) < len(target.split())
    assert rows[1] == rows[4] == ""
    assert {path.name for path in plots.iterdir()} == {f"{number}.png" for number in (1, 3, 4, 6)}


@pytest.mark.parametrize("options", [[], ["-n", "2"], ["--temperature", "1", "--seed", "3"]])
def test_processes_and_batches_make_no_difference(translate, options):
    text = TEXT * 7
    expected = translate("--devices", "1", *options, text=text).stdout
    assert translate("--devices", "3", "--batch-size", "2", *options, text=text).stdout == expected


def test_paragraphs_are_one_line_each(translate):
    text = b"The light is\non. The door\n\n\nA sensor\n"
    result = translate("--paragraphs", text=text)
    sentences = translate(text=b"The light is on.\nThe door\nA sensor\n").stdout.decode().splitlines()
    assert result.stdout.decode().splitlines() == [" ".join(sentences[:2]), "", "", sentences[2]]


def test_long_lines_are_split_or_refused(translate):
    text = b"A sensor\nThe light is on. The door was found. A sensor has failed.\n"
    split = translate("--max-input-length", "14", "--on-long", "split", text=text)
    assert split.stdout.count(b"\n") == 2
    assert b"too long" not in split.stderr
    refused = translate("--max-input-length", "14", "--on-long", "error", text=text)
    assert_refused(refused, "line 2", "--on-long")


def test_demands_from_a_file(translate, tmp_path):
    demands = tmp_path / "demands"
    demands.write_text('{"prefix": "Das Licht"}\n\n{"include": ["heute"]}\n\n\n{"exclude": ["Die"]}\n')
    lines = translate("--constraints", demands).stdout.decode().splitlines()
    assert lines[0].startswith("Das Licht")
    assert lines[1] == ""
    assert "heute" in lines[2]
    demands.write_text("\n")
    result = translate("--constraints", demands)
    assert (result.returncode, result.stdout.count(b"\n")) == (2, 1)
    assert b"ends before line 2" in result.stderr


def test_given_translations_are_scored(translate, tmp_path):
    reference, source = tmp_path / "reference", tmp_path / "source"
    source.write_bytes(b"The light is on.\nThe door\n")
    reference.write_text("Das Licht ist an.\nDas Licht\nDie Tür\nEin Sensor\n")
    arguments = ["-i", source, "--score-only", "--reference", reference]
    rows = [line.split("\t") for line in translate(*arguments, "-n", "2").stdout.decode().splitlines()]
    assert [row[2] for row in rows] == reference.read_text().splitlines()
    assert all(float(log_prob) < float(score) < 0 for score, log_prob, _ in rows)
    assert_refused(translate(*arguments), "4 lines", "2")
    assert_refused(translate("--score-only"), "--reference")


def test_scores_as_json_have_no_infinity(translate, tmp_path):
    reference, source = tmp_path / "reference", tmp_path / "source"
    source.write_bytes(b"The light is on.\n\n\n")
    reference.write_text("Das Licht\n\nx\n")
    result = translate("-i", source, "--score-only", "--reference", reference, "--format", "json")
    rows = [json.loads(line, parse_constant=pytest.fail) for line in result.stdout.splitlines()]
    assert [row["log_prob"] is None for row in rows] == [False, False, True]


def test_sampling_draws_as_many_as_are_written(translate):
    one = translate("--temperature", "1", "--seed", "5").stdout
    assert one == translate("--temperature", "1", "--seed", "5", "-b", "1").stdout
    assert one != translate("--temperature", "1", "--seed", "6").stdout


def test_numbers_that_changed_are_reported(translate):
    result = translate("--report-mismatch")
    assert b"line 4: differs from its source in: 1030" in result.stderr
    assert b"1 with other numbers" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "mentioned"),
    [
        (["--resume-output"], "standard stream"),
        (["--devices", "0"], "--devices"),
        (["--top-k", "3"], "temperature"),
        (["--token-pruning", "-1"], "token_pruning"),
        (["--exclude", "x", "--score-only"], "--score-only"),
        (["--precision", "int4"], "--precision"),
        (["--exclude", ""], "--exclude"),
        (["--length-penalty", "500"], "length_penalty"),
        (["--device", "meta"], "device"),
        (["--paragraphs", "--constraints", "x"], "--paragraphs"),
        (["--alignments", "-"], "standard output"),
        (["--attention-plot", __file__], "--attention-plot"),
        (["--seed", "99999999999999999999"], "seed"),
        (["--temperature", "1", "--hypothesis-pruning", "1"], "pruning"),
    ],
)
def test_mistakes_get_one_line(translate, arguments, mentioned):
    assert_refused(translate(*arguments), mentioned)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.one_of(st.text(max_size=30), st.binary(max_size=20))), st.booleans(), st.sampled_from(["text", "json"])
)
def test_any_bytes_give_as_many_lines_or_one_clear_error(model_folder, tmp_path, pieces, ends, kind):
    data = b"\n".join(p.encode("utf-8", "replace") if isinstance(p, str) else p for p in pieces) + b"\n" * ends
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(data)
    options = ["-m", str(model_folder), "-b", "2", "-i", str(source), "-o", str(output), "--devices", "1", "-q"]
    job = Job(parse_arguments([*options, "--format", kind, "--max-input-length", "40"]))
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        with pytest.raises(DataError, match="not UTF-8"):
            job.run()
        return
    job.run()
    body = data.removeprefix(b"\xef\xbb\xbf")
    expected = body.count(b"\n") + (not body.endswith(b"\n") and body != b"")
    written = output.read_bytes()
    assert written.count(b"\n") == expected
    assert written.endswith(b"\n") or not expected
    if kind == "json":
        assert [json.loads(line)["line"] for line in written.splitlines()] == list(range(1, expected + 1))
    assert not Path(f"{output}.part").exists()


def test_files_that_do_not_belong_to_the_text_are_noticed_at_the_end_of_a_pipe(translate, tmp_path):
    long = tmp_path / "long"
    long.write_text("\n" * 9)
    for options in (["--constraints"], ["--score-only", "--reference"]):
        result = translate(*options, long)
        assert result.stdout.count(b"\n") == NUM_LINES
        assert result.returncode == 2
        assert b"has more lines than standard input" in result.stderr
    assert_refused(translate("--score-only", "--reference", os.devnull), "ends before line 1")


def test_demands_come_through_a_pipe_too(run, model_folder, tmp_path):
    fifo, source = tmp_path / "fifo", tmp_path / "in"
    source.write_text("The light\nThe door\n")
    os.mkfifo(fifo)
    with subprocess.Popen(["/bin/sh", "-c", f'printf \'{{"prefix": "Das"}}\n\n\' > {fifo}']):
        result = run("translate.py", "-m", model_folder, "-i", source, "--constraints", fifo)
    assert result.returncode == 0
    assert result.stdout.startswith(b"Das")


def test_no_lines_have_no_scores(translate):
    result = translate("--reference", os.devnull, text=b"")
    assert result.returncode == 0
    assert b"nothing to score" in result.stderr


def test_ideographic_paragraphs_have_links_within_their_words(translate, tmp_path):
    source, links = "\u71c8\u4eae\u4e86\u3002\u9580\u958b\u4e86\u3002 The light", tmp_path / "links"
    output = translate("--paragraphs", "--alignments", links, text=source.encode()).stdout.decode()
    pairs = [tuple(map(int, link.split("-"))) for link in links.read_text().split()]
    assert pairs
    assert max(i for i, _ in pairs) < len(source.split())
    assert max(j for _, j in pairs) < len(output.split())
