"""Scores against the sacrebleu program, and the traps of calling it as a library."""

import json
import subprocess
import sys

import pytest

from gnmt.errors import DataError
from gnmt.metrics import perplexity, score

REFERENCES = ["Das Haus ist alt.", "Sie las gestern ein gutes Buch.", "Wir sehen uns morgen fr\u00fch am Bahnhof."]
HYPOTHESES = ["Das Haus ist alt.", "Sie hat gestern ein Buch gelesen.", "Wir sehen uns morgen am Bahnhof."]


def test_scores_equal_the_sacrebleu_program(tmp_path):
    reference, hypothesis = tmp_path / "ref", tmp_path / "hyp"
    reference.write_text("\n".join(REFERENCES) + "\n")
    hypothesis.write_text("\n".join(HYPOTHESES) + "\n")
    command = [sys.executable, "-m", "sacrebleu", reference, "-i", hypothesis, "-m", "bleu", "chrf", "-w", "6"]
    expected = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    found = score(HYPOTHESES, REFERENCES, "de")
    assert [found.bleu, found.chrf] == pytest.approx([row["score"] for row in expected], abs=1e-5)
    assert [found.bleu_signature, found.chrf_signature] == [row["signature"] for row in expected]
    assert 20 < found.bleu < 80


def test_references_are_not_nested_the_wrong_way_round():
    assert score(REFERENCES, REFERENCES).bleu == pytest.approx(100.0)
    assert score(HYPOTHESES, REFERENCES).bleu < 80


def test_counts_that_differ_are_refused():
    with pytest.raises(DataError, match="2 hypotheses for 3 references"):
        score(HYPOTHESES[:2], REFERENCES)
    with pytest.raises(DataError, match="0 hypotheses"):
        score([], [])


def test_the_tokenizer_follows_the_target_language():
    chinese = ["\u4eca\u5929\u5929\u6c14\u5f88\u597d\u3002"]
    for lang in ("zh", "zh-Hans"):
        assert "tok:zh" in score(chinese, chinese, lang).bleu_signature
    assert "tok:13a" in score(HYPOTHESES, REFERENCES, "de").bleu_signature


def test_perplexity():
    assert perplexity(0.0) == 1.0
    assert perplexity(1e6) == float("inf")
