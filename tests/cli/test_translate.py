"""translate.py as users run it: streams, files, pipes, mistakes."""

import gzip
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT, assert_refused

# Every way a text file goes wrong that users of such programs reported, and how many lines each one has.
INPUTS = {
    "line and paragraph separators": ("a\u2028b\nc\u2029d\u0085e\n".encode(), 2),
    "a bare carriage return": (b"a\rb\nc\n", 2),
    "windows line ends": (b"The light\r\nThe door\r\n", 2),
    "no line feed at the end": (b"The light\nThe door", 2),
    "blank lines first, in the middle, last": (b"\n\nThe light\n \n\nThe door\n\n", 7),
    "nothing": (b"", 0),
    "one line feed": (b"\n", 1),
    "a byte order mark": (b"\xef\xbb\xbfThe light\n", 1),
    "NUL and control characters": (b"The\x00 light\nThe\x07 door\x1b[1m\n", 2),
    "invisible characters only": ("\u200b\u00ad\n\ufeff\nThe light\n".encode(), 3),
    "one character": (b"a\n.\n1\n", 3),
    "special tokens as text": (b"<s> a </s> <unk> <pad>\n</s>\n", 2),
    "emoji and other scripts": (
        "\U0001f600 \u4f60\u597d\n\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\n".encode(),
        2,
    ),
    "a very long line": (b"The light is on. " * 300 + b"\nThe door\n", 2),
    "a very long word": (b"x" * 5000 + b"\n", 1),
    "many lines": (b"The light\nA sensor is on\n" * 1025, 2050),
}


@pytest.fixture(name="translate")
def _translate(run, model_folder):
    def translate(text, *arguments, **options):
        return run("translate.py", "-m", model_folder, "-b", "2", *arguments, text=text, **options)

    return translate


@pytest.mark.parametrize("name", INPUTS)
def test_one_line_out_for_each_line_in(translate, name):
    text, lines = INPUTS[name]
    result = translate(text)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(b"\n") == lines
    assert result.stdout.endswith(b"\n") or not lines
    assert b"\r" not in result.stdout
    assert b"\x00" not in result.stdout
    assert f"{lines} lines in" in result.stderr.decode()


def test_line_ends_and_locale_make_no_difference(translate):
    unix = translate(b"The light\n\nThe door").stdout
    assert translate(b"The light\r\n\r\nThe door\r\n").stdout == unix
    assert translate(b"The light\n\nThe door", LC_ALL="C", PYTHONUTF8="0").stdout == unix
    assert unix.split(b"\n")[1] == b""


@pytest.mark.parametrize("size", [1, 3, 64])
def test_batch_size_makes_no_difference(translate, size):
    text = b"".join(b"The door " * (i % 5) + b"was found.\n" for i in range(11))
    assert translate(text, "--batch-size", str(size)).stdout == translate(text).stdout


def test_files_and_streams_give_the_same(translate, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"The light\nThe door\n")
    from_stream = translate(source.read_bytes()).stdout
    result = translate(b"", "-i", source, "-o", target)
    assert target.read_bytes() == from_stream
    assert result.stdout == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.txt", "out.txt"]


def test_n_best_and_scores(translate):
    result = translate(b"The light\n\nThe door\n", "-b", "4", "-n", "3", "--with-scores")
    rows = [line.split("\t") for line in result.stdout.decode().splitlines()]
    assert len(rows) == 9
    assert all(len(row) == 3 for row in rows)
    for group in (rows[0:3], rows[6:9]):
        scores = [float(row[0]) for row in group]
        assert scores == sorted(scores, reverse=True)
        texts = [row[2] for row in group if row[0] != "-inf"]
        assert len(set(texts)) == len(texts) >= 1
    assert rows[3][2] == ""
    best = translate(b"The light\n\nThe door\n", "-b", "4").stdout.decode().splitlines()
    assert best == [rows[0][2], rows[3][2], rows[6][2]]


def test_reference_prints_signed_scores_to_stderr(translate, tmp_path):
    text = b"The light\nThe door\n"
    reference = tmp_path / "ref.txt"
    reference.write_bytes(translate(text).stdout)
    result = translate(text, "--reference", reference)
    message = result.stderr.decode()
    assert "BLEU" in message
    assert "chrF 100.00 (nrefs:1|" in message
    assert "tok:13a" in message
    assert result.stdout == reference.read_bytes()


def test_underscores_and_hyphens_name_the_same_option(translate):
    assert translate(b"The light\n", "--beam_size=3").stdout == translate(b"The light\n", "--beam-size", "3").stdout


def test_quiet_says_nothing_and_long_lines_are_reported_with_their_number(translate):
    text = b"The light\n" + b"The door is on. " * 200 + b"\n"
    assert translate(text, "-q").stderr == b""
    assert b"line 2: too long" in translate(text).stderr
    assert b"1 cropped" in translate(text).stderr


@pytest.mark.parametrize(
    ("arguments", "mentioned"),
    [
        (["--beam-size", "2", "--n-best", "5"], ["n-best 5", "beam size 2"]),
        (["--beam-size", "0"], ["beam_size"]),
        (["--beam-size", "many"], ["beam-size", "many"]),
        (["--no-such-option"], ["--no-such-option"]),
        (["--length-penalt", "1"], ["--length-penalt"]),
        (["-m", "/nonexistent"], ["/nonexistent", "does not exist"]),
        (["-i", "/nonexistent"], ["/nonexistent"]),
        (["-o", "/nonexistent/out"], ["/nonexistent/out"]),
        (["--reference", "/nonexistent"], ["/nonexistent"]),
        (["--device", "quantum"], ["quantum"]),
        (["--batch-size", "0"], ["batch size 0"]),
    ],
)
def test_mistakes_get_one_line(translate, arguments, mentioned):
    assert_refused(translate(b"The light\n", *arguments), *mentioned)


def test_text_that_is_not_utf8_is_refused_before_anything_is_translated(translate, tmp_path):
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_bytes(b"The light\nThe caf\xe9\n")
    result = translate(b"", "-i", source, "-o", target)
    assert_refused(result, "in.txt: line 2", "UTF-8")
    assert not target.exists()


def test_the_wrong_number_of_references_is_refused_beforehand(translate, tmp_path):
    source, reference = tmp_path / "in.txt", tmp_path / "ref.txt"
    source.write_bytes(b"a\nb\n")
    reference.write_bytes(b"a\n")
    assert_refused(translate(b"", "-i", source, "--reference", reference), "ref.txt has 1 lines", "in.txt has 2")


def test_input_and_output_must_differ(translate, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"The light\n")
    assert_refused(translate(b"", "-i", path, "-o", path), "same file")
    assert path.read_bytes() == b"The light\n"


def test_an_output_that_would_destroy_its_inputs_is_refused(translate, tmp_path):
    text = b"The light\n"
    for name in ("x.part", "ref.txt"):
        (tmp_path / name).write_bytes(text)
    assert_refused(translate(b"", "-i", tmp_path / "x.part", "-o", tmp_path / "x"), "same file")
    reference = tmp_path / "ref.txt"
    assert_refused(translate(text, "-o", reference, "--reference", reference), "same file")
    assert_refused(translate(text, "-o", tmp_path), "is a folder")
    assert all((tmp_path / name).read_bytes() == text for name in ("x.part", "ref.txt"))


def test_a_link_is_written_through(translate, tmp_path):
    (tmp_path / "target.txt").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "target.txt")
    assert translate(b"The light\n", "-o", tmp_path / "link").returncode == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target.txt").read_text().count("\n") == 1


def test_appending_to_the_input_is_refused(model_folder, tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"The light\n")
    with path.open("rb") as source, path.open("ab") as target:
        command = [sys.executable, str(ROOT / "translate.py"), "-m", str(model_folder)]
        result = subprocess.run(command, stdin=source, stdout=target, stderr=subprocess.PIPE, timeout=60)
    assert result.returncode == 2
    assert b"same file" in result.stderr
    assert path.read_bytes() == b"The light\n"


def test_devices_and_pipes_are_written_directly(translate, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    assert translate(b"The light\n", "-o", pipe).returncode == 0
    assert reader.communicate()[0].count(b"\n") == 1
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-9], lambda data: b"no gzip", lambda data: data[:20] + b"xx" * 9]
)
def test_a_damaged_compressed_file_is_refused(translate, tmp_path, damage):
    source = tmp_path / "in.gz"
    source.write_bytes(gzip.compress(b"The light\n" * 100))
    assert translate(b"", "-i", source).stdout.count(b"\n") == 100
    source.write_bytes(damage(source.read_bytes()))
    assert_refused(translate(b"", "-i", source), "cannot read", "in.gz")


def start(model_folder, *arguments, **options):
    command = [sys.executable, str(ROOT / "translate.py"), "-m", str(model_folder), "-b", "2", *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, cwd=ROOT, **options
    )


def test_a_dialogue_is_answered_line_by_line(model_folder):
    with start(model_folder) as process:
        answers = []
        for line in (b"The light\n", b"The door\n"):
            process.stdin.write(line)
            answers.append(process.stdout.readline())
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert all(answer.endswith(b"\n") for answer in answers)


def test_a_closed_pipe_ends_the_program_with_one_line(model_folder):
    with start(model_folder) as process:
        process.stdin.write(b"The light\n")
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"The door\n" * 10)
        process.stdin.close()
        assert process.wait(timeout=60) == 1
        assert process.stderr.read().splitlines()[-1] == b"error: the output was closed after 1 lines"


def test_a_full_disk_is_reported(model_folder):
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, str(ROOT / "translate.py"), "-m", str(model_folder)]
        result = subprocess.run(command, input=b"The light\n", stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert result.returncode == 1
    assert result.stderr == b"error: No space left on device after 0 lines\n"


def test_an_interruption_says_how_far_it_came_and_keeps_what_was_written(model_folder, tmp_path):
    target = tmp_path / "out.txt"
    with start(model_folder, "-o", str(target)) as process:
        process.stdin.write(b"The light\n")
        deadline = time.monotonic() + 60
        partial = tmp_path / "out.txt.part"
        while not partial.exists() or not partial.stat().st_size:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert b"interrupted after" in process.stderr.read()
    assert partial.read_bytes().count(b"\n") == 1
    assert not target.exists()


def test_a_cold_start_answers_within_five_seconds(translate):
    begin = time.monotonic()
    translate(b"The light\n")
    assert time.monotonic() - begin < 5
