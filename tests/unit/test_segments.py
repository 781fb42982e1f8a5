"""Where texts are cut."""

import time

import pytest

from gnmt.segments import split_long, split_sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("", []),
        ("  no end  ", ["no end"]),
        ('He said "No!" Then he left.', ['He said "No!"', "Then he left."]),
        ("Ask J. Smith on 25. September. Really.", ["Ask J. Smith on 25. September.", "Really."]),
        ("Version 2.5 is out, e.g. for you.", ["Version 2.5 is out, e.g. for you."]),
        ("See https://example.org/a.B?c=D. Good.", ["See https://example.org/a.B?c=D.", "Good."]),
        ("\u4f60\u597d\u3002\u4e16\u754c\uff01", ["\u4f60\u597d\u3002", "\u4e16\u754c\uff01"]),
        (
            "\u041f\u0440\u0438\u0432\u0435\u0442. \u041a\u0430\u043a?",
            ["\u041f\u0440\u0438\u0432\u0435\u0442.", "\u041a\u0430\u043a?"],
        ),
        ("Ende. \u00c4hnlich.", ["Ende.", "\u00c4hnlich."]),
        ("Ende. \u00e4hnlich. \u0442.\u0435. \u043f\u0440", ["Ende. \u00e4hnlich. \u0442.\u0435. \u043f\u0440"]),
        ("Ask Dr. Who. Now.", ["Ask Dr. Who.", "Now."]),
        ("Wait... what? (Yes.) 5 apples.", ["Wait... what?", "(Yes.)", "5 apples."]),
    ],
)
def test_sentences(text, expected):
    assert split_sentences(text) == expected


@pytest.mark.parametrize("limit", [1, 3, 7, 20, 1000])
@pytest.mark.parametrize(
    "text", ["One two. Three, four: five six seven! " * 5, "x" * 90, "\u4f60\u597d\u3002" * 9, "a b", "", ". . ."]
)
def test_long_text_is_cut_into_parts_that_fit_and_nothing_gets_lost(text, limit):
    parts = split_long(text, limit, len)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(len(part) <= limit for part in parts)


def test_sentences_stay_together_as_long_as_they_fit():
    assert split_long("One two. Three. Four five six.", 16, len) == ["One two. Three.", "Four five six."]
    assert split_long("Aaaa bbbb, cccc dddd.", 12, len) == ["Aaaa bbbb,", "cccc dddd."]


def test_time_grows_with_the_text_and_not_with_its_square():
    start = time.perf_counter()
    assert len(split_sentences("1. " * 50_000 + "A. Word. " * 20_000)) == 20_000
    assert time.perf_counter() - start < 5


def test_ideographic_parts_are_joined_without_spaces():
    assert split_long("\u4f60\u597d\u3002\u4e16\u754c\uff01\u518d\u89c1\u3002", 6, len) == [
        "\u4f60\u597d\u3002\u4e16\u754c\uff01",
        "\u518d\u89c1\u3002",
    ]
