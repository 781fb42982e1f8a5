"""The parts of translate.py: units, formats, streams, processes."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from gnmt import SearchConfig, Translator
from gnmt.data.padding import collate
from gnmt.errors import ConfigError, DataError
from gnmt.search.batch import Search
from gnmt.search.constraints import Constraints, ForbiddenSequences
from gnmt.translation.formats import json_line, mismatches, text_lines, word_links
from gnmt.translation.streams import check_outputs, open_output
from gnmt.translation.units import Unit, paragraphs, single_lines
from gnmt.translation.workers import Workers, count_devices
from gnmt.translator import TextHypothesis

LINES = ["The light is on.", "", "A sensor", "The door was found today.", "in {room}", "\u200b", "The battery"] * 3


def test_lines_are_counted_over_blocks():
    assert list(single_lines([["a", "b"], ["c"]])) == [[Unit(1, "a"), Unit(2, "b")], [Unit(3, "c")]]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_paragraphs_end_at_blank_lines_wherever_blocks_end(size):
    lines = ["", "One", " two ", "", " ", "Three", "four"]
    blocks = [lines[i : i + size] for i in range(0, len(lines), size)]
    found = [unit for block in paragraphs(blocks) for unit in block]
    assert found == [Unit(1, ""), Unit(2, "One two"), Unit(4, ""), Unit(5, ""), Unit(6, "Three four")]
    assert list(paragraphs([])) == []


def test_an_ensemble_of_one_model_twice_translates_like_the_model(model):
    alone, twice = Translator(model).translate_batch(LINES), Translator([model, model]).translate_batch(LINES)
    assert [a.text for a in alone] == [b.text for b in twice]
    assert alone[0].hypotheses[0].score == pytest.approx(twice[0].hypotheses[0].score)


def test_members_of_an_ensemble_need_one_vocabulary(model):
    from gnmt.tokenizer import Tokenizer

    other = model._replace(tokenizer=Tokenizer.train(["other words entirely here"], 274))
    with pytest.raises(ConfigError, match="vocabular"):
        Translator([model, other])


def test_given_translations_get_the_numbers_of_training(model):
    sources, targets = ["The light is on.", "A sensor", "The door"], ["Das Licht ist an.", "Die Tür wurde heute", ""]
    scored = Translator(model, SearchConfig(length_penalty=0.7, coverage_penalty=0.0)).score_batch(sources, targets)
    batch = collate(*([model.tokenizer.encode(text) for text in side] for side in (sources, targets)))
    with torch.no_grad():
        logits = model.network(batch.source, batch.source_lengths, batch.target_input, batch.target_mask)
    log_probs = torch.zeros(batch.target_mask.shape)
    log_probs[batch.target_mask] = -F.cross_entropy(logits, batch.target_output[batch.target_mask], reduction="none")
    for found, expected, length in zip(scored, log_probs.sum(0), batch.target_mask.sum(0), strict=True):
        assert found.log_prob == pytest.approx(float(expected), abs=1e-4)
        assert found.score == pytest.approx(float(expected / ((5 + length) / 6) ** 0.7), abs=1e-4)


def test_a_translation_that_search_found_gets_the_same_scores_again(model):
    with torch.no_grad():
        model.network.output.bias[model.tokenizer.eos_id] += 3.0
    translator = Translator(model, SearchConfig(beam_size=3, num_hypotheses=3, coverage_penalty=0.1))
    found = [(line, h) for line in LINES[:4] for h in translator.translate_batch([line])[0].hypotheses]
    complete = [(line, hypothesis) for line, hypothesis in found if hypothesis.is_complete and hypothesis.text]
    assert complete
    for line, hypothesis in complete:
        prefix = (*hypothesis.parts[0].tokens, model.tokenizer.eos_id)
        again = translator.translate_batch([line], [Constraints(prefix=prefix)])[0].hypotheses[0]
        assert again.score == pytest.approx(hypothesis.score, abs=1e-4)
        assert again.text == hypothesis.text


def test_padded_tokens_stay_within_the_limit_and_narrow_lines_do_not_join_wide_ones(model, monkeypatch):
    lines = ["The light is on today. " * 12, *LINES * 4]
    batches = []
    advance = Search.advance

    def watched(self):
        batches.append((self.num_active + self.num_done, self.width))
        return advance(self)

    monkeypatch.setattr(Search, "advance", watched)
    found = Translator(model, batch_size=200, batch_type="tokens").translate_batch(lines)
    longest = found[0].source_tokens + 1
    assert max(rows * width for rows, width in batches if rows > 1) <= 200
    assert {width for rows, width in batches if rows == 1} >= {longest}
    assert max(rows for rows, _ in batches) > 3
    assert [t.text for t in found] == [t.text for t in Translator(model).translate_batch(lines)]


def test_excluded_words_leave_cutting_as_it_is(model):
    line, demand = (
        "The light is on. The door was found.",
        Constraints(forbidden=(ForbiddenSequences([(7, 8, 9, 10, 11, 12)]),)),
    )
    (found,) = Translator(model, by_sentence=True).translate_batch([line], [demand])
    assert len(found.sources) == 2
    (found,) = Translator(model, by_sentence=True).translate_batch([line], [Constraints(prefix=(7,))])
    assert len(found.sources) == 1


def test_scores_of_nothing(model):
    found = Translator(model).score_batch(["", "", "The light"], ["", "Licht", ""])
    assert [found[0].log_prob, found[1].log_prob] == [0.0, float("-inf")]
    assert found[0].parts == ()
    assert found[2].log_prob < 0


def test_long_lines_are_cut_at_sentences_and_joined(model):
    line = "The light is on. The door was found. A sensor has failed."
    limit = 14
    whole = Translator(model, max_input_length=limit, on_long="split").translate_batch([line, "The door"])
    parts = Translator(model).translate_batch([model.tokenizer.decode(ids) for ids in whole[0].sources] + ["The door"])
    assert len(whole[0].sources) > 1
    assert whole[0].text == " ".join(part.text for part in parts[:-1])
    assert whole[0].hypotheses[0].log_prob == pytest.approx(sum(p.hypotheses[0].log_prob for p in parts[:-1]), abs=1e-4)
    assert whole[1].text == parts[-1].text
    with pytest.raises(DataError, match=r"line 1 has \d+ tokens, expected at most 14"):
        Translator(model, max_input_length=limit, on_long="error").translate_batch([line])


def test_links_count_words_over_parts(model):
    options = {"by_sentence": True, "keep_attention": True}
    (line,) = Translator(model, **options).translate_batch(["The light is on. The door was found."])
    links = word_links(line, model.tokenizer)
    assert len(line.sources) == 2
    assert [j for _, j in links] == list(range(len(line.text.split())))
    assert {i for i, _ in links} <= set(range(8))
    assert any(i >= 4 for i, _ in links)


def test_formats(model):
    (found,) = Translator(model, SearchConfig(beam_size=3, num_hypotheses=3)).translate_batch(["The light"])
    found = found._replace(hypotheses=found.hypotheses[:2])
    assert text_lines(found, 3, False).count("\n") == 3
    assert text_lines(found, 3, True).endswith("\n-inf\t-inf\t\n")
    row = json.loads(json_line(4, found, model.tokenizer, ["a remark"]))
    assert (row["line"], row["translation"], row["warnings"]) == (4, found.text, ["a remark"])
    assert [h["translation"] for h in row["n_best"]] == [h.text for h in found.hypotheses]
    assert "".join(row["source_tokens"]).replace("\u2581", " ").strip() == "The light"
    (empty,) = Translator(model).translate_batch([""])
    assert json.loads(json_line(1, empty, model.tokenizer, []))["tokens"] == []


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("12.5 of 3,000", "12,5 von 3.000", []),
        ("call 244890", "ruf 24,490", ["244890", "24490"]),
        ("see https://a.org/x?y=1.", "siehe https://a.org/x?y=1 .", []),
        ("mail a@b.org", "mail a@c.org", ["a@b.org", "a@c.org"]),
        ("nothing", "nichts", []),
    ],
)
def test_mismatches(source, target, expected):
    assert mismatches(source, TextHypothesis(target, 0.0, 0.0, True, (), ())) == expected


def test_an_output_appears_when_it_is_complete_with_what_stood_there(tmp_path):
    output = tmp_path / "out"
    (tmp_path / "out.part").write_bytes(b"a\n")
    with open_output(str(output), append=True) as stream:
        stream.write(b"x\n")
        assert not output.exists()
    assert output.read_bytes() == b"a\nx\n"


def test_what_an_interrupted_run_left_is_not_overwritten(tmp_path):
    (tmp_path / "out.part").write_bytes(b"a\n")
    with pytest.raises(ConfigError, match="--resume-output"):
        check_outputs([str(tmp_path / "out")], ["-"], resume=False)
    check_outputs([str(tmp_path / "out")], ["-"], resume=True)


@pytest.mark.parametrize("second", ["a", "a.part", "./a", "link"])
def test_no_output_overwrites_another_one(tmp_path, second):
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for pair in (("a", second), (second, "a")):
        with pytest.raises(ConfigError, match="twice"):
            check_outputs([f"{tmp_path}/{name}" for name in pair], ["-"], resume=True)
    with pytest.raises(ConfigError, match="standard output"):
        check_outputs(["-", "-"], ["in"], resume=False)


def test_several_processes_translate_like_one(model):
    translator = Translator(model, SearchConfig(beam_size=2))
    expected = [translation.text for translation in translator.translate_batch(LINES)]
    with Workers(lambda _: translator, 3, fork=True) as workers:
        for lines in (LINES, LINES[:1], LINES[:2]):
            found = workers.translate_batch(lines, None, range(1, len(lines) + 1))
            assert [translation.text for translation in found] == expected[: len(lines)]
        demands = [Constraints(prefix=(7,))] * 2
        assert all(
            t.hypotheses[0].parts[0].tokens[0] == 7 for t in workers.translate_batch(["a b", "c"], demands, [1, 2])
        )


def test_a_process_that_ends_is_an_error_and_bad_input_is_passed_on(model):
    translator = Translator(model, max_input_length=3, on_long="error")
    with Workers(lambda _: translator, 2, fork=True) as workers:
        with pytest.raises(DataError, match="line 9 has"):
            workers.translate_batch(["a", "The light is on today"], None, [8, 9])
        assert workers.translate_batch(["a"], None, [1])[0].source_tokens == 2
        os.kill(workers._processes[0].pid, signal.SIGKILL)
        with pytest.raises(OSError, match="worker process ended with status -9"):
            workers.translate_batch(["a", "b"], None, [1, 2])


def test_number_of_processes():
    assert count_devices("3", "cpu") == 3
    assert 1 <= count_devices("auto", "cpu") <= 8
    with pytest.raises(ConfigError, match="GPUs"):
        count_devices("99", "cuda")


def test_attention_is_drawn_for_any_script(tmp_path):
    import numpy as np

    from gnmt.translation.plots import AttentionPlots

    plots = AttentionPlots(tmp_path / "new" / "folder")
    plots.draw("3", ["\u2581The", "$x_1$"], ["\u2581\u4f60", "\U0001f600", "\u0645"], np.full((4, 3), 0.3))
    assert Path(tmp_path / "new" / "folder" / "3.png").stat().st_size > 1000


def test_pictures_of_long_lines_stay_small(tmp_path):
    import numpy as np
    from matplotlib.image import imread

    from gnmt.translation.plots import AttentionPlots

    AttentionPlots(tmp_path).draw("1", ["a"] * 3000, ["b"] * 2000, np.full((2001, 3001), 0.5, dtype=np.float32))
    assert max(imread(tmp_path / "1.png").shape) < 5000
