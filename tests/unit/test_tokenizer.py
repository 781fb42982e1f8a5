"""Text to ids and back: nothing is lost, nothing becomes a special token."""

import pickle

import pytest
from conftest import toy_pairs

from gnmt.errors import CheckpointError, ConfigError
from gnmt.tokenizer import Tokenizer, normalize

TEXTS = [
    "The light is on in {room}.",
    "<s> </s> <unk> <pad> <0x41> <2de> \u2047 &amp;quot;",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2603\ufe0f caf\u00e9 cafe\u0301 \ufdfa \uff21\uff22 \u00bd \ufb01",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\u4f60\u597d \u3053\u3093\u306b\u3061\u306f \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \U00010348",
    "https://example.org/a?b=1&c=%20 2.200.112 1,5 \u20ac 10:30",
    "x" * 3000,
]


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip_keeps_every_character(tokenizer, text):
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert min(ids) > tokenizer.eos_id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a \t b  ", "a b"),
        ("a\u2028b\u00a0c\x0bd\re\u3000f\u0085g", "a b c d e f g"),
        ("a\x00b\x07c\x1bd", "abcd"),
        ("\ufeffa\u200bb\u00adc", "abc"),
        ("\u2581x\u2585", "_x#"),
        ("\u200b\u00ad \x00", ""),
        ("", ""),
    ],
)
def test_normal_form(tokenizer, text, expected):
    assert normalize(text) == expected
    assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_decoding_stops_at_eos_and_leaves_special_ids_out(tokenizer):
    a, b = tokenizer.encode("The")[:1], tokenizer.encode("door")[:1]
    eos, bos, pad = [tokenizer.eos_id], [tokenizer.bos_id], [tokenizer.pad_id]
    assert tokenizer.decode(bos + a + b + eos + eos + a + pad) == tokenizer.decode(a + b)
    assert tokenizer.decode(eos + a) == tokenizer.decode([]) == ""


def test_predicted_control_bytes_never_break_a_line(tokenizer):
    newline = tokenizer._processor.piece_to_id("<0x0A>")
    assert tokenizer.decode([*tokenizer.encode("a"), newline, *tokenizer.encode("b")]) == "a b"


def test_training_is_deterministic_and_pickles_as_its_bytes(tokenizer):
    again = Tokenizer.train((text for pair in toy_pairs() for text in pair), 320)
    assert again.model == tokenizer.model
    assert pickle.loads(pickle.dumps(tokenizer)).model == tokenizer.model
    assert tokenizer.vocab_size == 320


@pytest.mark.parametrize(("size", "message"), [(32000, "to at most"), (100, "raise the vocabulary size")])
def test_impossible_sizes_say_what_is_possible(size, message):
    with pytest.raises(ConfigError, match=message):
        Tokenizer.train((text for pair in toy_pairs() for text in pair), size)


def test_a_damaged_model_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="damaged"):
        Tokenizer(b"nonsense")
    with pytest.raises(CheckpointError, match="cannot read"):
        Tokenizer.load(tmp_path / "missing")


@pytest.mark.parametrize("text", ["The light is on.", "\U0001f600 in {room} \u4f60\u597d", "a", "  ", "x \u00e9 y"])
def test_every_piece_belongs_to_a_word_of_the_text(tokenizer, text):
    ids = tokenizer.encode(text)
    words = tokenizer.word_numbers(ids).tolist()
    assert sorted(set(words)) == list(range(len(text.split())))
    assert words == sorted(words)
    for number, word in enumerate(text.split()):
        assert tokenizer.decode([i for i, w in zip(ids, words, strict=True) if w == number]) == word


def test_pieces_without_words_belong_to_their_neighbours(tokenizer):
    space = tokenizer.encode("a b")[0]
    ids = [space, space, *tokenizer.encode("light"), space, space]
    assert set(tokenizer.word_numbers(ids).tolist()) == {0}
    assert tokenizer.word_numbers([space]).tolist() == []
