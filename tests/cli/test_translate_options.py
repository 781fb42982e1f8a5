"""translate.py with all that it offers: formats, demands, long text, processes, resuming, scoring, any bytes at all."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, assert_refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnmt.checkpoint import load_model
from gnmt.errors import DataError
from gnmt.translation.job import Job
from gnmt.translation.options import parse_arguments
from gnmt.translation.ranks import Rank
from gnmt.translation.resume import Resumable

TEXT = (
    "The light is on.\n\nA sensor was found today. The door is off.\nin {room} at 10:30\n\u200b\nThe battery\n".encode()
)
NUM_LINES = 6


@pytest.fixture(name="translate")
def _translate(run, model_folder):
    def translate(*arguments, text=TEXT):
        return run("translate.py", "-m", model_folder, "-b", "3", *arguments, text=text)

    return translate


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


def interrupted(model_folder, options, written):
    """Leave what a run that was killed leaves."""
    arguments = parse_arguments(["-m", str(model_folder), *map(str, options)])
    with Resumable(arguments, Rank(0, 1), [load_model(model_folder)], "fp32") as resumable:
        resumable.begin()
        Path(f"{arguments.output}.part").write_text(written)


@pytest.mark.parametrize(
    ("changed", "mentioned"),
    [
        (["--format", "json"], "format"),
        (["-b", "2"], "beam_size"),
        (["--precision", "bf16"], "precision"),
        (["--length-penalty", "1"], "length_penalty"),
        (["-i", "other"], "files"),
    ],
)
def test_a_run_with_other_options_is_not_continued(translate, model_folder, tmp_path, changed, mentioned):
    for name in ("in", "other"):
        (tmp_path / name).write_text("The light\nThe door\n")
    options = ["-b", "3", "-i", tmp_path / "in", "-o", tmp_path / "out"]
    interrupted(model_folder, options, "Das\n")
    changed = [tmp_path / "other" if argument == "other" else argument for argument in changed]
    assert_refused(translate(*options, "--resume-output", *changed), f"was begun with {mentioned}", "delete it")
    assert (tmp_path / "out.part").read_text() == "Das\n"
    assert translate(*options, "--resume-output", "--batch-size", "1").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "other", "out"]


def test_what_cannot_be_continued_is_refused(translate, model_folder, tmp_path):
    source, part = tmp_path / "in", tmp_path / "out.part"
    source.write_text("The light\n")
    options = ["-b", "3", "-i", source, "-o", tmp_path / "out"]
    part.write_text("Das\n")
    assert_refused(translate(*options, "--resume-output"), "out.part.options does not say how")
    interrupted(model_folder, options, "Das\nDie\n")
    assert_refused(translate(*options, "--resume-output"), "has 2 lines, more than the 1")
    part.unlink()
    assert translate(*options, "--resume-output").returncode == 0
    assert_refused(translate(*options, "--resume-output"), "complete")


def test_alignments_are_continued_with_their_translations(translate, model_folder, tmp_path):
    source, output, links = (tmp_path / name for name in ("in", "out", "links"))
    source.write_text("The light\nThe door\nA sensor\n")
    options = ["-b", "3", "-i", source, "-o", output, "--alignments", links]
    translate(*options)
    whole = output.read_text().splitlines(keepends=True), links.read_text().splitlines(keepends=True)
    for path in (output, links):
        path.unlink()
    interrupted(model_folder, options, "".join(whole[0][:1]))
    Path(f"{links}.part").write_text("".join(whole[1][:2]) + "0-")
    assert b"resumed behind line 1" in translate(*options, "--resume-output").stderr
    assert (output.read_text(), links.read_text()) == tuple(map("".join, whole))


def test_a_resumed_run_goes_on_with_its_lines_demands(translate, model_folder, tmp_path):
    source, output, demands = tmp_path / "in", tmp_path / "out", tmp_path / "demands"
    source.write_text("The light\nThe door\nA sensor\n")
    demands.write_text('{"prefix": "Das"}\n{"prefix": "Die"}\n{"prefix": "Ein"}\n')
    options = ["-b", "3", "-i", source, "-o", output, "--constraints", demands]
    interrupted(model_folder, options, "Das\nDie\n")
    translate(*options, "--resume-output")
    assert [line.split()[0][:3] for line in output.read_text().splitlines()] == ["Das", "Die", "Ein"]
    demands.write_text("\n\n")
    assert_refused(translate("-i", source, "--constraints", demands), "2 lines", "3")


def test_a_terminated_run_leaves_no_process_behind(model_folder, tmp_path):
    source = tmp_path / "in"
    source.write_bytes(TEXT * 3000)
    command = [sys.executable, ROOT / "translate.py", "-m", model_folder, "-i", source, "-o", tmp_path / "out"]
    process = subprocess.Popen([*command, "--devices", "2"], stderr=subprocess.PIPE, start_new_session=True)
    part = tmp_path / "out.part"
    for _ in range(600):
        if part.exists() and part.stat().st_size:
            break
        time.sleep(0.05)
    process.terminate()
    _, message = process.communicate(timeout=20)
    assert process.returncode == 143
    assert b"Traceback" not in message
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_numbers_that_changed_are_reported(translate):
    result = translate("--report-mismatch")
    assert b"line 4: differs from its source in: 1030" in result.stderr
    assert b"1 with other numbers" in result.stderr


@pytest.mark.parametrize("options", [[], ["-n", "2"], ["--format", "json"]])
def test_a_killed_run_is_continued_to_the_same_output(translate, model_folder, tmp_path, options):
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(TEXT * 300)
    common = [sys.executable, ROOT / "translate.py", "-m", model_folder, "-b", "2", "-i", source, *options]
    process = subprocess.Popen([*common, "-o", output], stderr=subprocess.DEVNULL, env={**os.environ})
    part = tmp_path / "out.part"
    for _ in range(600):
        if part.exists() and part.stat().st_size:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not output.exists()
    refused = translate("-i", source, "-o", output, *options)
    assert_refused(refused, "--resume-output")
    result = subprocess.run([*common, "-o", output, "--resume-output"], capture_output=True, check=True)
    assert b"resumed behind line" in result.stderr
    subprocess.run([*common, "-o", tmp_path / "whole"], capture_output=True, check=True)
    # Batches are others behind the interruption, and the last digits of scores with them.
    digits = re.compile(rb'"(score|log_prob)": [-.0-9]+')
    assert digits.sub(b"", output.read_bytes()) == digits.sub(b"", (tmp_path / "whole").read_bytes())
    assert not part.exists()


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


def test_ranks_of_a_launcher_translate_their_parts_and_the_last_one_joins_them(run, model_folder, tmp_path):
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(TEXT * 3)

    def torchrun(number):
        return {"RANK": str(number), "WORLD_SIZE": "3", "LOCAL_RANK": "0"}

    def slurm(number):
        return {"SLURM_PROCID": str(number), "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}

    for launcher, order in ((torchrun, (1, 0, 1, 2)), (slurm, (1, 0))):
        for number in order:
            assert not output.exists()
            result = run("translate.py", "-m", model_folder, "-b", "2", "-i", source, "-o", output, **launcher(number))
            assert result.returncode == 0, result.stderr
        expected = run("translate.py", "-m", model_folder, "-b", "2", "-i", source).stdout
        assert output.read_bytes() == expected
        output.unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_rank_that_was_interrupted_goes_on_behind_its_last_line(run, model_folder, tmp_path):
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_bytes(TEXT * 2)
    whole = run("translate.py", "-m", model_folder, "-b", "2", "-i", source).stdout.splitlines(keepends=True)
    part_options = ["-b", "2", "-i", source, "-o", tmp_path / "out.rank-1-of-2"]
    interrupted(model_folder, part_options, b"".join(whole[6:8]).decode() + "half a l")
    for number in ("0", "1"):
        options = ["-m", model_folder, "-b", "2", "-i", source, "-o", output]
        result = run("translate.py", *options, RANK=number, WORLD_SIZE="2")
    assert b"resumed behind line 8" in result.stderr
    assert output.read_bytes() == b"".join(whole)


@pytest.mark.parametrize("options", [[], ["-o", "x", "--paragraphs"]])
def test_ranks_need_files(run, model_folder, options):
    result = run("translate.py", "-m", model_folder, *options, text=TEXT, RANK="0", WORLD_SIZE="2")
    assert_refused(result, "several ranks")
    assert_refused(run("translate.py", "-m", model_folder, RANK="5", WORLD_SIZE="2"), "RANK")


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


@pytest.mark.parametrize("closed", ["<&-", ">&-"])
def test_closed_streams_get_one_line(model_folder, closed):
    command = f"{sys.executable} {ROOT / 'translate.py'} -m {model_folder} {closed}"
    result = subprocess.run(["/bin/sh", "-c", command], input=TEXT, capture_output=True, check=False)
    assert_refused(result, "is closed")


def test_messages_do_not_go_to_the_translations(model_folder):
    command = f"{sys.executable} {ROOT / 'translate.py'} -m {model_folder} -b 1 2>&-"
    result = subprocess.run(["/bin/sh", "-c", command], input=TEXT, capture_output=True, check=False)
    assert result.returncode == 0
    assert result.stdout.count(b"\n") == NUM_LINES


def test_an_interrupt_while_torch_is_loaded_is_no_traceback(model_folder):
    process = subprocess.Popen(
        [sys.executable, ROOT / "translate.py", "-m", model_folder], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while b"libtorch" not in Path(f"/proc/{process.pid}/maps").read_bytes():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"Traceback" not in message


def test_ideographic_paragraphs_have_links_within_their_words(translate, tmp_path):
    source, links = "\u71c8\u4eae\u4e86\u3002\u9580\u958b\u4e86\u3002 The light", tmp_path / "links"
    output = translate("--paragraphs", "--alignments", links, text=source.encode()).stdout.decode()
    pairs = [tuple(map(int, link.split("-"))) for link in links.read_text().split()]
    assert pairs
    assert max(i for i, _ in pairs) < len(source.split())
    assert max(j for _, j in pairs) < len(output.split())
