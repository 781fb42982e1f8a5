"""Failures that users of translation programs reported, each with its right outcome here.

The texts are written for the purpose, the outcomes are those of the line contract; most run in this process.
"""

import json
import re

import pytest

from gnmt.errors import CheckpointError, ConfigError, DataError
from gnmt.tokenizer import normalize
from gnmt.translation.job import Job
from gnmt.translation.options import parse_arguments


@pytest.fixture
def translate(model_folder, tmp_path, caplog):
    """Translate a text with some options: output lines; remarks are in `translate.remarks`, links in `links`."""

    def translate(text, *options):
        (tmp_path / "in").write_bytes(text if isinstance(text, bytes) else text.encode())
        output = tmp_path / "out"
        common = ["-m", str(model_folder), "-i", str(tmp_path / "in"), "-o", str(output), "--devices", "1"]
        caplog.clear()
        Job(parse_arguments([*common, *options])).run()
        data = output.read_bytes()
        output.unlink()
        translate.remarks = [record.getMessage() for record in caplog.records]
        assert data.endswith(b"\n") or not data
        return data.decode().split("\n")[:-1]

    return translate


SENTENCES = "The light is on.\nA sensor has failed today.\nThe door\nIn the room the battery was found.\n"


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_line(translate, separator):
    found = translate(f"The light{separator}is on.\nThe door\n")
    assert len(found) == 2
    assert found[1] == translate("The door\n")[0]
    assert not re.search("[\r\x0b\x0c\x1c\x85\u2028\u2029]", "".join(found))


def test_line_ends_of_windows_are_those_of_unix(translate):
    assert translate("The light\r\n\r\nThe door\r\n") == translate("The light\n\nThe door\n")


@pytest.mark.parametrize(("text", "expected"), [("a\nb\nc", 3), ("a\n\n\n", 3), ("", 0), ("\n", 1)])
def test_the_last_line_counts_with_and_without_its_end(translate, text, expected):
    assert len(translate(text)) == expected


def test_blank_lines_stay_where_they_are(translate):
    text = "\nThe light\n \n\t\u200b\nThe door\n\u00ad\n"
    for size in ("1", "2", "16"):
        found = translate(text, "--batch-size", size)
        assert [not line for line in found] == [True, False, True, True, False, True]


def test_a_line_does_not_depend_on_its_neighbours(translate):
    lines = ["a", *SENTENCES.splitlines(), "x" * 40]
    together = translate("\n".join(lines) + "\n")
    assert together == [translate(line + "\n")[0] for line in lines]


def test_a_length_limit_is_each_sentences_own(translate):
    alone = translate("The light\n")
    assert translate("The light\n" + "The door is on. " * 20 + "\n")[:1] == alone


def test_text_in_another_encoding_is_refused_with_its_line(translate):
    with pytest.raises(DataError, match="line 2 is not UTF-8"):
        translate(b"The light\n" + b"caf\xe9\n")


def test_nul_bytes_do_not_get_through(translate):
    found = translate("The\x00 light\nThe door\n")
    assert found == translate("The light\nThe door\n")


@pytest.mark.parametrize("way", ["crop", "split"])
def test_a_line_that_is_too_long_is_translated_and_reported(translate, way):
    text = "The light\n" + "The door is on. " * 30 + "\nA sensor\n"
    found = translate(text, "--max-input-length", "40", "--on-long", way)
    assert [bool(line) for line in found] == [True] * 3
    assert any(re.match("line 2: too long", remark) for remark in translate.remarks) == (way == "crop")
    assert [found[0], found[2]] == translate("The light\nA sensor\n")


def test_all_sentences_of_a_line_are_translated(translate):
    sentences = ["The light is on.", "The door is off.", "A sensor has failed.", "It was found today."] * 2
    (line,) = translate(" ".join(sentences) + "\n", "--paragraphs")
    assert line == " ".join(filter(None, translate("\n".join(sentences) + "\n")))


@pytest.mark.parametrize("size", ["1", "4", "8", "16"])
def test_counts_that_are_no_multiple_of_the_batch(translate, size):
    text = "".join(f"The door {'is on ' * (i % 4)}{i}.\n" for i in range(11))
    assert translate(text, "--batch-size", size) == translate(text)


@pytest.mark.parametrize("window", [1, 16, 1000])
def test_windows_make_no_difference(translate, monkeypatch, window):
    text = "The light\nA sensor is on\n" * 60
    expected = translate(text, "-b", "1")
    monkeypatch.setattr("gnmt.translation.inputs._FIRST_WINDOW", window)
    monkeypatch.setattr("gnmt.translation.inputs.WINDOW", window)
    assert translate(text, "-b", "1") == expected


def test_scores_do_not_depend_on_the_batch(translate):
    text = "The light\n" + SENTENCES + "The door is on. " * 8 + "\n"
    found = {
        size: [line.split("\t") for line in translate(text, "--with-scores", "--batch-size", size)] for size in "126"
    }
    for size in "26":
        assert [row[2] for row in found[size]] == [row[2] for row in found["1"]]
        for row, expected in zip(found[size], found["1"], strict=True):
            assert [float(x) for x in row[:2]] == pytest.approx([float(x) for x in expected[:2]], abs=1e-4)


def n_best(translate, text, number, *options):
    lines = translate(text, "-b", "8", "-n", str(number), "--with-scores", *options)
    rows = [line.split("\t") for line in lines]
    return [rows[i : i + number] for i in range(0, len(rows), number)]


def test_the_best_of_many_is_the_only_one(translate):
    best = translate(SENTENCES, "-b", "8")
    for number in (2, 5, 8):
        assert [group[0][2] for group in n_best(translate, SENTENCES, number)] == best


def test_n_best_lists_are_sorted_without_duplicates(translate):
    groups = n_best(translate, SENTENCES, 8)
    assert len(groups) == 4
    for group in groups:
        scores, texts = [float(row[0]) for row in group], [row[2] for row in group if row[0] != "-inf"]
        assert scores == sorted(scores, reverse=True)
        assert len(set(texts)) == len(texts) >= 2


def test_scores_are_those_of_forced_decoding(translate, tmp_path):
    groups = n_best(translate, SENTENCES, 2)
    reference = tmp_path / "reference"
    reference.write_text("".join(f"{row[2]}\n" for group in groups for row in group))
    again = translate(SENTENCES, "--score-only", "-n", "2", "--reference", str(reference))
    tokens = [json.loads(line) for line in translate(SENTENCES, "-b", "8", "-n", "2", "--format", "json")]
    compared = 0
    for row, line, of_line in zip(
        [r for g in groups for r in g], again, [t for t in tokens for _ in "12"], strict=True
    ):
        found = next(each for each in of_line["n_best"] if each["translation"] == row[2])
        score, log_prob, text = line.split("\t")
        assert text == row[2]
        if found["complete"] and float(log_prob) == pytest.approx(float(row[1]), abs=1e-3):
            assert float(score) == pytest.approx(float(row[0]), abs=1e-3)
            compared += 1
    # What was cut off has no end of its own, and search may spell a text with other pieces than the tokenizer.
    assert compared or not any(each["complete"] for row in tokens for each in row["n_best"])


def test_more_translations_than_hypotheses_are_refused(translate):
    with pytest.raises(ConfigError, match="n-best 5 with beam size 2"):
        translate("The light\n", "-b", "2", "-n", "5")


def test_translations_do_not_run_away(translate, model):
    lines = ["NEW", "OFF, ON, OFF", "THE LIGHT", "Title Of One", "Word"]
    for row, text in zip(translate("\n".join(lines) + "\n", "--format", "json"), lines, strict=True):
        assert len(json.loads(row)["tokens"]) <= 2 * (len(model.tokenizer.encode(text)) + 1) + 10


@pytest.mark.parametrize("text", ["<s> light </s>", "<unk> <pad>", "</s>", "<0x41>"])
def test_control_symbols_are_text(translate, model, text):
    ids = model.tokenizer.encode(text)
    assert not {model.tokenizer.pad_id, model.tokenizer.bos_id, model.tokenizer.eos_id} & set(ids)
    assert model.tokenizer.decode(ids) == text
    assert translate(text + "\n")[0]


def test_characters_that_training_never_saw_make_no_marker(translate, model):
    text = "\U0001f600 \U0001f468\u200d\U0001f469\n\u4f60\u597d\n\u0645\u06cc\u200c\u062e\n"
    assert not re.search("\u2047|<unk>|</s>", "\n".join(translate(text)))
    for line in text.splitlines():
        assert model.tokenizer.decode(model.tokenizer.encode(line)) == normalize(line)


def test_spaces_are_single_and_inside(translate):
    for line in translate("  The light\nThe   door\nA\u00a0sensor \t\n"):
        assert not re.search(r"^\s|\s$|\s\s", line)


def test_numbers_and_addresses_that_are_lost_are_reported(translate):
    translate("At 10:45 see https://example.org/a?b=1\nNo number\n", "--report-mismatch", "-b", "2")
    assert any("line 1: differs from its source in" in r and "1045" in r and "example" in r for r in translate.remarks)


def test_links_are_within_both_lines(translate, tmp_path):
    text = "The light is on.\n\nA \u4f60\u597d sensor\n"
    links = tmp_path / "links"
    for options in ([], ["--paragraphs"], ["--on-long", "split", "--max-input-length", "6"]):
        found = translate(text, "--alignments", str(links), *options)
        rows = links.read_text().split("\n")[:-1]
        assert len(rows) == len(found) == 3
        assert rows[1] == ""
        for source, target, row in zip(text.splitlines(), found, rows, strict=True):
            pairs = [tuple(map(int, link.split("-"))) for link in row.split()]
            assert bool(pairs) == bool(target)
            assert all(i < len(source.split()) and j < len(target.split()) for i, j in pairs)
        links.unlink()


def test_wrapped_text_is_one_line_a_paragraph(translate):
    assert translate("The light\nis on.\n\nThe door\n", "--paragraphs")[1] == ""
    assert len(translate("The light\nis on.\n\x00\u200b\nThe door\n", "--paragraphs")) == 3


@pytest.mark.parametrize("content", [b"PK\x03\x04\x14\x00\x08\x08\xff\xfe", b"\x1f\x8b\x08\x00", b"\xff\xfeT\x00h\x00"])
def test_a_document_is_refused_and_not_copied(translate, content):
    with pytest.raises(DataError, match="UTF-8"):
        translate(content)


def test_an_input_is_never_its_own_output(translate, tmp_path):
    with pytest.raises(ConfigError, match="same file"):
        translate("The light\n", "-o", str(tmp_path / "in"))
    assert (tmp_path / "in").read_text() == "The light\n"


def test_a_pickle_is_not_run(translate, tmp_path):
    class Attack:
        def __reduce__(self):
            return (open, (str(tmp_path / "owned"), "w"))

    import pickle

    (tmp_path / "evil.ckpt").write_bytes(pickle.dumps({"state_dict": Attack()}))
    with pytest.raises(CheckpointError, match="nothing was run"):
        translate("The light\n", "-m", str(tmp_path / "evil.ckpt"))
    assert not (tmp_path / "owned").exists()
