"""What one translated line looks like: text with or without scores, a JSON object, word links."""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence

from gnmt.alignment import align_words, pharaoh
from gnmt.tokenizer import Tokenizer
from gnmt.translator import TextHypothesis, Translation

# What is copied as a rule: URLs, e-mail addresses, and numbers whatever separates their digits.
_COPIED = re.compile(r"https?://[^\s<>\"]+|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+\.[\w.-]+|\d+(?:[.,:\u00a0' ]?\d+)*")


def text_lines(translation: Translation, n_best: int, with_scores: bool) -> str:
    """The lines of one input line: exactly `n_best`, the last ones blank if there are fewer translations."""
    lines = []
    for hypothesis in translation.hypotheses:
        scores = f"{hypothesis.score:.6f}\t{hypothesis.log_prob:.6f}\t" if with_scores else ""
        lines.append(scores + hypothesis.text)
    blank = "-inf\t-inf\t" if with_scores else ""
    return "".join(line + "\n" for line in lines + [blank] * (n_best - len(lines)))


def json_line(number: int, translation: Translation, tokenizer: Tokenizer, warnings: Sequence[str]) -> str:
    """One JSON object on a line; scores are in nats, words of the alignment are counted from 0."""
    best = translation.hypotheses[0]
    fields = {
        "line": number,
        "translation": best.text,
        "score": _finite(best.score),
        "log_prob": _finite(best.log_prob),
        "source_tokens": [piece for ids in translation.sources for piece in tokenizer.pieces(ids)],
        "tokens": [piece for part in best.parts for piece in tokenizer.pieces(part.tokens)],
        "alignment": word_links(translation, tokenizer),
        "n_best": [
            {
                "translation": each.text,
                "score": _finite(each.score),
                "log_prob": _finite(each.log_prob),
                "complete": each.is_complete,
            }
            for each in translation.hypotheses
        ],
        "warnings": list(warnings),
    }
    return json.dumps(fields, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(number: float) -> float | None:
    """Rounded to what is exact; JSON has no infinity: None for the log-probability of what is impossible."""
    return round(number, 6) if math.isfinite(number) else None


def alignment_line(translation: Translation, tokenizer: Tokenizer) -> str:
    """The word links of the best translation in Pharaoh's format; blank if there are none."""
    return pharaoh(word_links(translation, tokenizer)) + "\n"


def word_links(translation: Translation, tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """(source word, target word) of the best translation, counted over all parts of the line."""
    links: set[tuple[int, int]] = set()  # neighbouring parts may share a word
    best = translation.hypotheses[0]
    of_source, of_target = (
        zip(translation.sources, translation.first_words, strict=True),
        zip(best.parts, best.first_words, strict=True),
    )
    for (ids, first_source), (part, first_target) in zip(of_source, of_target, strict=True):
        source, target = tokenizer.word_numbers(ids), tokenizer.word_numbers(part.tokens)
        if part.attention is not None:
            links |= {(i + first_source, j + first_target) for i, j in align_words(source, target, part.attention)}
    return sorted(links)


def mismatches(source: str, hypothesis: TextHypothesis) -> list[str]:
    """Numbers, URLs and e-mail addresses of the source that the translation lacks, or has besides."""
    found, expected = (Counter(map(_digits, _COPIED.findall(text))) for text in (hypothesis.text, source))
    return sorted((found - expected) + (expected - found))


def _digits(text: str) -> str:
    """A number without what separates its digits, which languages write differently; other text as it is."""
    return re.sub(r"\D", "", text) if text[0].isdigit() and "@" not in text else text.rstrip(".,;:!?")
