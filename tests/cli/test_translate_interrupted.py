"""translate.py when something ends it, when it goes on, in parts on several machines, and with streams closed."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import NUM_LINES, ROOT, TEXT, assert_refused

from gnmt.checkpoint import load_model
from gnmt.translation.options import parse_arguments
from gnmt.translation.ranks import Rank
from gnmt.translation.resume import Resumable


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
