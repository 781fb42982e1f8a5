"""Lines in, translations out: order, batches and windows leave no trace in the result."""

import pytest

from gnmt import SearchConfig, Translator
from gnmt.errors import ConfigError

LINES = ["The light is on.", "", "A", "\u200b", "The door was found today. " * 6, "sensor {room}", "The battery", " "]


def results(model, lines=LINES, search=None, **options):
    return Translator(model, search, **options).translate_batch(lines)


def texts(translations):
    return [[hypothesis.text for hypothesis in translation.hypotheses] for translation in translations]


@pytest.mark.parametrize(("size", "kind"), [(1, "sents"), (2, "sents"), (7, "sents"), (1, "tokens"), (60, "tokens")])
def test_batches_leave_no_trace(model, size, kind):
    search = SearchConfig(beam_size=3, num_hypotheses=3)
    expected, found = results(model, search=search), results(model, search=search, batch_size=size, batch_type=kind)
    assert texts(found) == texts(expected)
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
            assert a.score == pytest.approx(b.score, abs=1e-4)


def test_each_line_as_if_it_stood_alone(model):
    together = texts(results(model))
    assert [texts(results(model, [line]))[0] for line in LINES] == together


@pytest.mark.parametrize("window", [1, 3, 100])
def test_a_stream_is_translated_in_windows(model, window):
    translator = Translator(model)
    lines = iter(LINES)
    stream = translator.translate(lines, window)
    assert [next(stream).text] + [translation.text for translation in stream] == [t[0] for t in texts(results(model))]


def test_lines_without_pieces_stay_empty(model):
    found = results(model)
    for i in (1, 3, 7):
        assert found[i].text == ""
        assert found[i].source_tokens == 0
    assert found[4].text
    assert results(model, []) == []


def test_long_lines_are_cropped_and_marked(model):
    limited = results(model, max_input_length=8)
    assert [translation.is_cropped for translation in limited] == [n > 8 for n in (t.source_tokens for t in limited)]
    assert limited[4].is_cropped
    short = Translator(model).tokenizer.decode(Translator(model).tokenizer.encode(LINES[4])[:8])
    assert limited[4].text == results(model, [short])[0].text


def test_no_text_comes_twice(model):
    for translation in results(model, search=SearchConfig(beam_size=8, num_hypotheses=8)):
        found = [hypothesis.text for hypothesis in translation.hypotheses]
        assert len(set(found)) == len(found)


def test_wrong_options_are_refused(model):
    for options in ({"batch_type": "words"}, {"batch_size": 0}, {"max_input_length": 0}, {"device": "quantum"}):
        with pytest.raises(ConfigError):
            Translator(model, **options)


def test_a_model_of_broken_weights_says_so(model):
    model.network.output.bias.data.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="not numbers"):
        results(model)
