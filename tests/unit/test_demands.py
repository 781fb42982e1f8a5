"""Demands on single lines: how they are read, what search makes of them, what is said of those that are not met."""

import argparse
import re

import pytest
import torch

from gnmt import SearchConfig, Tokenizer, Translator
from gnmt.errors import DataError
from gnmt.phrases import banned_after
from gnmt.translation.account import Account
from gnmt.translation.demands import Demand, Demands
from gnmt.translation.units import Unit
from gnmt.translator import TextHypothesis, Translation

LINE = "The light is on."


@pytest.fixture(scope="module")
def demands(tokenizer):
    return Demands(tokenizer, whole_words=True, exclude=["x"])


def read(demands, tmp_path, text):
    path = tmp_path / "demands"
    path.write_text(text)
    return list(demands.read(str(path)))


def test_demands_are_read_line_by_line(demands, tmp_path):
    assert read(demands, tmp_path, '{"prefix": "Das", "include": ["Licht  an"]}\n\n{"exclude": ["Tor"]}\n') == [
        Demand("Das", ("Licht an",), ("x",)),
        Demand("", (), ("x",)),
        Demand("", (), ("x", "Tor")),
    ]


@pytest.mark.parametrize(
    "line",
    [
        *("{", "[]", '{"inclde": []}', '{"include": "x"}', '{"include": [1]}', '{"prefix": []}', '{"exclude": [" "]}'),
        *('{"prefix": "\\ud800"}', "[" * 100_000, '{"prefix": %s}' % ("1" * 5000)),
        *('{"include": ["Tor"], "exclude": ["tor"]}', '{"include": ["ein X"]}', '{"prefix": "x", "exclude": ["y"]}'),
        '{"include": ["Tor"], "include": ["Licht"]}',
        '{"include": ["heute"], "exclude": ["he"]}',
    ],
    ids=lambda line: line[:30],
)
def test_wrong_demands_name_their_line(demands, tmp_path, line):
    with pytest.raises(DataError, match="line 2"):
        read(demands, tmp_path, f"\n{line}\n")


def test_what_a_translation_has_against_its_demand():
    demand = Demand("", ("Tür", "an"), ("licht",))
    assert demand.unmet("Die Tür ist an.", whole_words=True) == []
    assert demand.unmet("Die Türen, Licht an", whole_words=True) == ["does not contain 'Tür'", "contains 'licht'"]
    assert demand.unmet("Die Türen, Lichter an", whole_words=True) == ["does not contain 'Tür'"]
    assert demand.unmet("Lichter, Türen, ganz", whole_words=False) == ["contains 'licht'"]
    demand = Demand("Das Tor")
    assert demand.unmet("Das Tor.", whole_words=True) == []
    assert demand.unmet("Das Tore", whole_words=False) == []
    assert demand.unmet("Das Tore", whole_words=True) == demand.unmet("", whole_words=True)
    assert demand.unmet("", whole_words=True) == ["does not begin with 'Das Tor'"]


def test_phrases_in_the_prefix_or_in_other_phrases_are_not_asked_for_twice(demands):
    def required(prefix, *include):
        found = demands.constraints(Demand(prefix, include)).required
        return [demands._tokenizer.decode(sequence) for sequence in found]

    assert required("", "Licht", "Licht an") == ["Licht an"]
    assert required("", "Licht an", "Licht", "Licht an", "Lichter") == ["Licht an", "Lichter"]
    assert required("Das Licht", "Licht", "an") == ["an"]
    assert required("Die Lichter", "Licht") == ["Licht"]


def test_what_is_spelled_with_a_forbidden_word_gets_other_pieces():
    """The usual pieces of the longer word begin with those of the shorter one."""
    text = ["Licht und Lichter"] * 9 + ["Lich teer"] * 3 + ["Feld er"] * 9
    tokenizer = Tokenizer.train(text, 278)
    demands = Demands(tokenizer, whole_words=True, exclude=[])
    (plain,) = demands.constraints(Demand("", ("Lichter",))).required
    demand = Demand("", ("Lichter",), ("Licht",))
    (sequence,) = demands.constraints(demand).required
    bans = demands.constraints(demand).forbidden
    assert any(token in banned_after(plain[:i], bans) for i, token in enumerate(plain))
    assert not any(token in banned_after(sequence[:i], bans) for i, token in enumerate(sequence))
    assert tokenizer.decode(sequence) == tokenizer.decode(plain) == "Lichter"


def test_included_words_and_a_prefix_are_in_translations_as_whole_words(model, demands):
    translator = Translator(model, SearchConfig(beam_size=4, num_hypotheses=4))
    wanted = demands.constraints(Demand("Die", ("Tür",)))
    (within,) = translator.translate_batch([LINE], [wanted])
    words = re.findall(r"\w+", within.text)
    assert words[0] == "Die"
    assert "Tür" in words


@pytest.mark.parametrize("limits", [{"token_pruning": 0.5}, {"no_repeat_ngram_size": 1}, {"beam_size": 1}], ids=str)
def test_included_words_come_before_the_limits_of_search(model, demands, limits):
    translator = Translator(model, SearchConfig(**limits))
    demand = Demand("", ("Batterie", "heute"))
    (found,) = translator.translate_batch([LINE], [demands.constraints(demand)])
    assert demand.unmet(found.text, whole_words=True) == []


def test_no_translation_has_an_excluded_word(model, demands):
    with torch.no_grad():
        for token, piece in enumerate(model.tokenizer.piece_bytes()):
            model.network.output.bias[token] += 3.0 * piece.strip().isalpha()
    translator = Translator(model, SearchConfig(beam_size=3, num_hypotheses=3))
    words = set(re.findall(r"\w+", translator.translate_batch([LINE])[0].text))
    assert words
    for word in words:
        constraints = demands.constraints(Demand(exclude=(word,)))
        (found,) = translator.translate_batch([LINE], [constraints])
        assert all(word not in re.findall(r"\w+", hypothesis.text) for hypothesis in found.hypotheses)


def test_words_of_a_language_without_spaces_are_spelled_as_they_stand_in_the_text():
    text = ["打开卧室的灯光", "关闭客厅的灯", "灯光已经打开", "今天客厅的温度很高", "卧室温度"] * 5
    for model_type in ("unigram", "bpe"):
        tokenizer = Tokenizer.train(text, 284, model_type)
        demands = Demands(tokenizer, whole_words=False, exclude=["门"])
        # Some of them are not among the characters of the vocabulary.
        for phrase in ("灯", "灯光", "温度很", "打开", "门牌", "\ue000", "Tür"):
            (sequence,) = demands.constraints(Demand("", (phrase,))).required
            assert not any(piece.startswith("\u2581") for piece in tokenizer.pieces(sequence))
            assert tokenizer.decode([*tokenizer.encode("卧室的"), *sequence, *sequence]) == f"卧室的{phrase}{phrase}"
        (sequence,) = demands.constraints(Demand("", ("温度",))).required
        written = tuple(tokenizer.encode("今天客厅的温度很高"))
        assert sequence in {written[i : i + len(sequence)] for i in range(len(written))}


@pytest.mark.parametrize("phrase", ["灯光", "Licht", "\U0001f600"])
def test_included_words_in_the_translations_of_a_language_without_spaces(model, phrase):
    translator = Translator(model._replace(target_lang="zh"), SearchConfig(beam_size=4))
    demands = Demands(model.tokenizer, whole_words=translator.puts_spaces, exclude=["e"])
    (found,) = translator.translate_batch([LINE], [demands.constraints(Demand("打开", (phrase,), ("e",)))])
    assert found.text.startswith("打开")
    assert phrase in found.text
    assert "e" not in found.text


def test_nothing_is_prepared_for_lines_without_demands(tokenizer, monkeypatch):
    monkeypatch.setattr("gnmt.translation.demands.PieceTable", None)
    demands = Demands(tokenizer, whole_words=True, exclude=[])
    assert not any(demands.everywhere())
    demands.constraints(demands.everywhere())


def test_phrases_that_are_forbidden_everywhere_are_prepared_once(tokenizer, monkeypatch):
    from gnmt.phrases import PieceTable

    demands, spelled = Demands(tokenizer, whole_words=True, exclude=["Licht", "{room}"]), []
    spelling = PieceTable._spelling

    def watched(self, form, *, whole_words):
        spelled.append(form)
        return spelling(self, form, whole_words=whole_words)

    monkeypatch.setattr(PieceTable, "_spelling", watched)
    for i in range(20):
        constraints = demands.constraints(Demand(exclude=("Licht", "{room}", f"Wort{i}")))
        assert len(constraints.forbidden) == 2
    assert spelled.count("Licht") == spelled.count("{room}") == spelled.count("Wort3") == 1


def translation(*texts):
    return Translation([TextHypothesis(text, 0.0, 0.0, True, (), ()) for text in texts], 1, False, (), ())


@pytest.fixture
def account(model):
    options = argparse.Namespace(report_mismatch=False, max_input_length=500)
    return Account(options, Translator(model), None)


def test_demands_that_are_not_met_are_reported(account):
    demand = Demand("Das", ("Tür",), ("x",))
    unit = Unit(1, LINE)
    assert account.remarks(unit, translation("Das Tür"), demand) == []
    assert account.remarks(unit, translation("Das Tür", "Das", "Tür", "Das Tür"), demand) == [
        "other translations that do not meet their demands: 2 of 3"
    ]
    assert account.remarks(unit, translation("Das", "Tür"), demand) == [
        "the translation does not contain 'Tür'; other translations that do not meet their demands: 1 of 1"
    ]
    assert account.remarks(unit, translation("Die x Tür"), demand) == [
        "the translation does not begin with 'Das', contains 'x'"
    ]
    assert account.summary() == ", 3 against their demands"


@pytest.mark.parametrize("line", ["", "\u200b"])
def test_demands_on_a_blank_line_are_reported(account, model, demands, line):
    demand = Demand("Das", ("Tür",), ("x",))
    (found,) = Translator(model).translate_batch([line], [demands.constraints(demand)])
    (remark,) = account.remarks(Unit(1, line), found, demand)
    assert "begin with 'Das'" in remark
    assert "contain 'Tür'" in remark
    assert account.remarks(Unit(2, line), found, demands.everywhere()) == []
