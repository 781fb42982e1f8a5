"""Interrupted outputs and those of several ranks: continued, begun anew or refused, but never joined wrongly."""

import os

import pytest

from gnmt.errors import ConfigError, DataError
from gnmt.translation.job import Job, Tally
from gnmt.translation.options import parse_arguments
from gnmt.translation.ranks import Rank, merge, options_of_rank
from gnmt.translation.streams import note_of

LINES = [f"The light {number}" for number in range(6)]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in"
    path.write_text("".join(line + "\n" for line in LINES))
    return path


@pytest.fixture
def start(model_folder, source, tmp_path):
    """Run a job in this process: its lines done."""

    def start(*options, rank=None):
        arguments = ["-m", str(model_folder), "-b", "1", "--devices", "1", "-i", str(source)]
        parsed = parse_arguments([*arguments, "-o", str(tmp_path / "out"), *map(str, options)])
        tally = Tally()
        Job(options_of_rank(parsed, rank) if rank else parsed, rank or Rank(0, 1)).run(tally)
        return tally.lines_done

    return start


@pytest.fixture
def interrupt(start, tmp_path, monkeypatch):
    """A job that was killed when it had written some lines."""

    def interrupt(lines, *options, rank=None):
        with monkeypatch.context() as patch:
            patch.setattr("gnmt.translation.inputs._FIRST_WINDOW", lines)
            patch.setattr("gnmt.translation.writer.Writer.write", _failing_second(lines))
            with pytest.raises(KeyboardInterrupt):
                start(*options, rank=rank)

    return interrupt


def _failing_second(lines):
    from gnmt.translation.writer import Writer

    write, calls = Writer.write, []

    def failing(self, *arguments):
        calls.append(1)
        if len(calls) > 1 or not lines:
            raise KeyboardInterrupt
        write(self, *arguments)

    return failing


def test_a_run_goes_on_behind_its_last_line(start, interrupt, tmp_path):
    start()
    whole = (tmp_path / "out").read_text()
    (tmp_path / "out").unlink()
    interrupt(2)
    assert (tmp_path / "out.part").read_text().count("\n") == 2
    assert start("--resume-output") == 4
    assert (tmp_path / "out").read_text() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_outputs_that_were_not_begun_together_are_not_continued(start, interrupt, tmp_path):
    interrupt(2)
    with pytest.raises(DataError, match="alignments"):
        start("--resume-output", "--alignments", tmp_path / "links")
    assert (tmp_path / "out.part").read_text().count("\n") == 2


def test_all_outputs_begin_anew_if_one_is_missing(start, interrupt, tmp_path):
    links = ("--alignments", tmp_path / "links")
    interrupt(2, *links)
    (tmp_path / "links.part").unlink()
    assert start("--resume-output", *links) == 6
    assert [(tmp_path / name).read_text().count("\n") for name in ("out", "links")] == [6, 6]


def test_a_text_that_changed_is_not_continued(start, interrupt, source):
    interrupt(2)
    os.utime(source, ns=(1, 1))
    with pytest.raises(DataError, match="files"):
        start("--resume-output")


def test_a_run_that_met_a_long_line_goes_on_with_another_way(start, interrupt):
    interrupt(2, "--on-long", "error", "--max-input-length", "50")
    with pytest.raises(DataError, match="max_input_length"):
        start("--resume-output", "--on-long", "split", "--max-input-length", "40")
    assert start("--resume-output", "--on-long", "split", "--max-input-length", "60") == 4


def test_a_measured_precision_is_kept(start, interrupt, monkeypatch):
    interrupt(2, "--precision", "bf16")
    monkeypatch.setattr("gnmt.translator.fastest_precision", lambda _: "fp32")
    with pytest.raises(DataError, match="precision"):
        start("--resume-output", "--precision", "fp32")
    assert start("--resume-output", "--precision", "auto") == 4


def test_only_one_process_writes_an_output(start, interrupt, tmp_path):
    interrupt(2)
    with note_of(tmp_path / "out").open() as file:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another process"):
            start("--resume-output")
    assert start("--resume-output") == 4


def test_a_run_that_wrote_nothing_leaves_nothing(interrupt, start, tmp_path):
    interrupt(0, "--alignments", tmp_path / "links")
    with pytest.raises(ConfigError, match="no folder"):
        start("--alignments", tmp_path / "nowhere" / "links")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("options", [["--constraints", "missing"], ["--reference", "missing"], ["-i", "missing"]])
def test_missing_files_are_named_before_any_work(start, tmp_path, options):
    with pytest.raises(DataError, match="cannot read missing"):
        start(*options)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_what_is_no_file_cannot_be_continued(start, tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="regular files"):
        start("--resume-output")


def test_lines_that_have_their_demands_are_translated(start, tmp_path):
    demands = tmp_path / "demands"
    os.mkfifo(demands)
    if os.fork() == 0:
        demands.write_text("\n\n{}\n{\n")
        os._exit(0)
    with pytest.raises(DataError, match="line 4 is no JSON"):
        start("--constraints", demands)
    assert (tmp_path / "out.part").read_text().count("\n") == 3


@pytest.mark.parametrize(("text", "message"), [("a\n", "lost lines"), ("a\n" * 9, "got more lines")])
def test_a_text_that_changes_while_it_is_read_is_noticed(start, source, monkeypatch, text, message):
    from gnmt.translation.inputs import Inputs

    check = Inputs.check

    def changing(self):
        lines = check(self)
        source.write_text(text)
        return lines

    monkeypatch.setattr(Inputs, "check", changing)
    with pytest.raises(DataError, match=message):
        start()


def test_ranks_parts_are_joined_when_all_are_there_and_checked_when_they_are_met_again(start, interrupt, tmp_path):
    first, second = Rank(0, 2), Rank(1, 2)
    start(rank=first)
    assert not merge(tmp_path / "out", 2)
    with pytest.raises(DataError, match="length_penalty"):
        start("--length-penalty", "1", rank=first)
    assert start(rank=first) == 0
    interrupt(1, rank=second)
    assert start(rank=second) == 2
    assert merge(tmp_path / "out", 2)
    joined = (tmp_path / "out").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    (tmp_path / "out").unlink()
    start()
    assert (tmp_path / "out").read_text() == joined
