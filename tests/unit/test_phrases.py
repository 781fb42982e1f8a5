"""Forbidden phrases, checked against texts that random sequences of pieces make."""

import random
import re

import pytest

from gnmt.phrases import ForbiddenPhrases, PieceTable, appears, forms, is_word_character


@pytest.fixture(scope="module")
def table(tokenizer):
    return PieceTable(tokenizer)


@pytest.mark.parametrize(
    ("phrase", "text", "expected"),
    [
        ("Tür", "Die Tür.", True),
        ("Tür", "Tür", True),
        ("Tür", "Türen, Haustür, Tür_1", False),
        ("Tür", "Türen (Tür)", True),
        ("ist an", "Es ist an", True),
        ("ist an", "Es ist ans", False),
        ("an.", "an.Ende", True),
        ("\u0928", "\u0928\u0940", False),
    ],
)
def test_phrases_are_whole_words(phrase, text, expected):
    assert appears(phrase, text) == expected
    assert appears(phrase, text, whole_words=False)


def test_a_phrase_begins_with_a_capital_letter_at_the_start_of_a_sentence():
    assert forms(" licht  an ") == {"licht an", "Licht an"}
    assert forms("Tür") == {"Tür"}


PHRASES = ["die", "Licht", "ist an", "e", ".", "an.", "Tür", "ü", "{room}", "wurde heute gefunden"]


@pytest.mark.parametrize("whole_words", [True, False])
def test_a_text_that_is_not_banned_has_no_forbidden_phrase(tokenizer, table, whole_words):
    """Texts are made of the phrases' own pieces and bytes, so that they are met in all spellings."""
    generator = random.Random(1)
    pieces = [
        i for i, piece in enumerate(table.bytes_of) if piece and any(piece.strip() in p.encode() for p in PHRASES)
    ]
    pieces += [i for i in range(tokenizer.vocab_size) if table.bytes_of[i] in (b" ", b".", b"(", b"x")]
    banned_somewhere = 0
    for _ in range(3000):
        phrase = generator.choice(PHRASES)
        forbidden = ForbiddenPhrases([phrase], table, whole_words=whole_words)
        tokens = []
        for _ in range(12):
            banned = forbidden.after(tokens)
            banned_somewhere += len(banned)
            tokens.append(generator.choice([token for token in pieces if token not in banned]))
        text = tokenizer.decode(tokens)
        assert not any(appears(form, text, whole_words=whole_words) for form in forms(phrase)), (phrase, text)
    assert banned_somewhere > 3000


def test_only_what_makes_the_phrase_is_banned(tokenizer, table):
    """Each ban is needed: with the banned token the phrase is there, as a whole word or as the start of one."""
    generator = random.Random(2)
    for phrase in PHRASES:
        forbidden = ForbiddenPhrases([phrase], table)
        ids = tokenizer.encode("Das " + phrase)
        for cut in range(len(ids) + 1):
            for token in generator.sample(sorted(banned := forbidden.after(ids[:cut])), min(20, len(banned))):
                text = b"".join(table.bytes_of[i] for i in (*ids[:cut], token)).decode(errors="ignore")
                start = r"(?<![\w])" if is_word_character(phrase[0]) else ""
                assert any(re.search(start + re.escape(form), text) for form in forms(phrase)), (phrase, text)


def test_longer_words_are_left_alone(tokenizer, table):
    """A longer word that is a piece of its own is another word."""
    words = [piece.decode() for piece in table.bytes_of if piece.startswith(b" ") and piece[1:].isalpha()]
    pairs = [(short, word) for short in words for word in words if word != short and word.startswith(short)][:200]
    assert pairs
    for short, word in pairs:
        forbidden = ForbiddenPhrases([short], table)
        assert table.ids_of[word.encode()][0] not in forbidden.after(tokenizer.encode("Das"))
        assert table.ids_of[short.encode()][0] in forbidden.after(tokenizer.encode("Das"))


def test_a_thousand_phrases_and_a_long_one_are_prepared_at_once(table):
    import time

    start = time.perf_counter()
    ForbiddenPhrases([f"Wort{i}" for i in range(1000)], table)
    forbidden = ForbiddenPhrases(["sehr " * 3000 + "lang"], table)
    forbidden.after([5] * 300)
    assert time.perf_counter() - start < 5


def test_pieces_of_words(tokenizer, table):
    continued = {table.bytes_of[i] for i in table.words.continuing}
    assert all(not piece.startswith((b" ", b".")) for piece in continued)
    assert {bytes([0xC3]), b"a"} <= continued
    assert table.ids_of[b"."][0] not in table.words.ending
