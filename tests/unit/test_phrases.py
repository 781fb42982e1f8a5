"""Forbidden phrases, checked against texts that random sequences of pieces make."""

import random
import re

import pytest

from gnmt.phrases import ForbiddenPhrases, PieceTable, appears, banned_after, forms, is_word_character
from gnmt.search.constraints import ForbiddenSequences
from gnmt.tokenizer import ALTERED, normalize


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


PHRASES = [
    "die",
    "Licht",
    "ist an",
    "e",
    ".",
    "an.",
    "Tür",
    "ü",
    "{room}",
    "wurde heute gefunden",
    "\u201e",
    "\u201cfl",
]


def is_near(piece, phrase):
    """Whether a piece is a part of a phrase, or begins with its end."""
    return piece.strip() in phrase or any(piece.startswith(phrase[i:]) for i in range(1, len(phrase)))


@pytest.mark.parametrize("whole_words", [True, False])
def test_a_text_that_is_not_banned_has_no_forbidden_phrase(tokenizer, table, whole_words):
    """Texts are made of the phrases' own pieces and bytes, so that they are met however they are cut into pieces.

    Among them are the bytes of characters that `normalize` takes out or makes spaces of.
    """
    generator = random.Random(1)
    parts = {token: piece for token, piece in enumerate(table.bytes_of) if piece}
    hidden = [[table.ids_of[bytes([byte])][0] for byte in character.encode()] for character in ALTERED]
    others = [table.ids_of[part][-1] for part in (b" ", b".", b"(", b"x", b"\x00", b"\xc3", b"\xe2")]
    forbidden = {p: ForbiddenPhrases([p], table, whole_words=whole_words) for p in PHRASES}
    own = {p: [[token] for token, part in parts.items() if is_near(part, p.encode())] for p in PHRASES}
    banned_somewhere = near = 0
    for _ in range(6000):
        phrase = generator.choice(PHRASES)
        ban, tokens = forbidden[phrase], []
        choices = own[phrase] * 4 + [[token] for token in others] + hidden
        begun = generator.choice(["", " ", "x", "."]) + phrase[: generator.randint(0, len(phrase))]
        chosen = [table.ids_of[bytes([byte])][0] for byte in begun.encode()]
        while len(chosen) < 14:
            chosen += generator.choice(choices)
        for token in chosen:
            banned = banned_after(tokens, [ban])
            banned_somewhere += len(banned)
            if token not in banned:
                tokens.append(token)
            else:
                near += 1
        text = tokenizer.decode(tokens)
        assert not any(appears(form, text, whole_words=whole_words) for form in forms(phrase)), (phrase, text)
    assert banned_somewhere > 3000
    assert near > 3000


def test_a_space_may_be_there_twice(tokenizer, table):
    (space, *_), (behind, *_) = table.ids_of[b" "], table.ids_of[b" au"]
    for phrase, tokens, last in (("ist au", [space], behind), ("ist aux", [space, behind], table.ids_of[b"x"][0])):
        ban = ForbiddenPhrases([phrase], table)
        assert last in banned_after([*tokenizer.encode("Es ist"), space, *tokens], [ban])


def test_characters_that_normalize_alters_cannot_be_written_beside_forbidden_phrases(table):
    ban = ForbiddenPhrases(["Licht"], table)
    assert {"\x00", "\u00a0", "\u00ad", "\u200b", "\u3000", "\u2581"} <= set(ALTERED)
    for character in ALTERED:
        assert normalize(f"a{character}b") != f"a{character}b"
        tokens = [table.ids_of[bytes([byte])][0] for byte in character.encode()]
        assert tokens[-1] in banned_after(tokens[:-1], [ban])


def test_only_what_makes_the_phrase_is_banned(tokenizer, table):
    """Each ban is needed: with the banned token the phrase is there, as a whole word or as the start of one."""
    generator = random.Random(2)
    never = set(ForbiddenPhrases([], table).always.tolist())
    for phrase in PHRASES:
        forbidden = ForbiddenPhrases([phrase], table)
        ids = tokenizer.encode("Das " + phrase)
        for cut in range(len(ids) + 1):
            altered = banned_after(ids[:cut], [ForbiddenPhrases([], table)])
            banned = banned_after(ids[:cut], [forbidden]) - altered
            for token in generator.sample(sorted(banned), min(20, len(banned))):
                text = b"".join(table.bytes_of[i] for i in (*ids[:cut], token)).decode(errors="ignore")
                start = r"(?<![\w])" if is_word_character(phrase[0]) else ""
                assert any(re.search(start + re.escape(form), text) for form in forms(phrase)), (phrase, text)
    assert {table.bytes_of[token] for token in never} == {bytes([b]) for b in (*range(32), 127)}


def test_longer_words_are_left_alone(tokenizer, table):
    """A longer word that is a piece of its own is another word."""
    words = [piece.decode() for piece in table.bytes_of if piece.startswith(b" ") and piece[1:].isalpha()]
    pairs = [(short, word) for short in words for word in words if word != short and word.startswith(short)][:200]
    assert pairs
    for short, word in pairs:
        forbidden = ForbiddenPhrases([short], table)
        banned = banned_after(tokenizer.encode("Das"), [forbidden])
        assert table.ids_of[word.encode()][0] not in banned
        assert table.ids_of[short.encode()][0] in banned


def test_a_thousand_phrases_and_a_long_one_are_prepared_at_once(table):
    import time

    start = time.perf_counter()
    ForbiddenPhrases([f"Wort{i}" for i in range(1000)], table)
    forbidden = ForbiddenPhrases(["sehr " * 3000 + "lang"], table)
    forbidden.after([5] * 300)
    assert time.perf_counter() - start < 5


def test_other_pieces_for_what_is_forbidden_in_the_usual_ones(tokenizer, table):
    assert tokenizer.pieces(table.respelled(" heute", [])) == ["\u2581", "he", "u", "te"]
    ban = ForbiddenPhrases(["he"], table)
    assert table.respelled(" heute", [ban]) is None  # no piece goes from the first syllable to the second
    ban = ForbiddenPhrases(["wu"], table)
    assert table.respelled(" wurde", [ban]) is None
    ban = ForbiddenPhrases(["Batt"], table)
    assert tokenizer.pieces(table.respelled(" Batterie", [ban])) == ["\u2581", "B", "atter", "i", "e"]
    spelled = table.respelled(" Batterie", [ForbiddenSequences([tuple(tokenizer.encode("Batter")[-1:])])])
    assert tokenizer.decode(spelled) == "Batterie"


def test_pieces_of_words(tokenizer, table):
    continued = {table.bytes_of[i] for i in table.words.continuing}
    assert all(not piece.startswith((b" ", b".")) for piece in continued)
    assert {bytes([0xC3]), b"a"} <= continued
    assert table.ids_of[b"."][0] not in table.words.ending
