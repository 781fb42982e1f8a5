"""Corpus BLEU and chrF on detokenised text, each with its sacreBLEU signature; perplexity."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from gnmt.errors import ConfigError, DataError

# The languages whose words sacreBLEU's default tokenizer (13a) cannot tell apart.
_TOKENIZERS = {"zh": "zh", "ja": "ja-mecab", "ko": "ko-mecab"}


class Scores(NamedTuple):
    """Corpus scores in points (0 to 100) and the signatures that say how they were computed."""

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str

    def __str__(self) -> str:
        return f"BLEU {self.bleu:.2f} ({self.bleu_signature})  chrF {self.chrf:.2f} ({self.chrf_signature})"


def check_target_lang(target_lang: str | None) -> BLEU:
    """Make the BLEU metric for a target language, so that a missing tokenizer is noticed before any work.

    Raises:
        ConfigError: the language's tokenizer is not installed.
    """
    language = re.split("[-_]", (target_lang or "").lower())[0]
    tokenizer = _TOKENIZERS.get(language)
    try:
        return BLEU(tokenize=tokenizer)
    except (ImportError, RuntimeError):
        raise ConfigError(
            f"BLEU for {target_lang!r} needs the tokenizer {tokenizer}: pip install 'gnmt[{language}]'"
        ) from None


def score(hypotheses: Sequence[str], references: Sequence[str], target_lang: str | None = None) -> Scores:
    """Score hypotheses, one a line, against one reference each.

    Args:
        hypotheses: detokenised translations.
        references: untouched reference translations.
        target_lang: language code such as `de` or `zh-Hans`; decides the tokenizer inside BLEU.

    Raises:
        DataError: the counts differ, or are zero.
        ConfigError: the language's tokenizer is not installed.
    """
    if len(hypotheses) != len(references) or not references:
        raise DataError(f"{len(hypotheses)} hypotheses for {len(references)} references, expected one for each")
    bleu = check_target_lang(target_lang)
    chrf = CHRF()
    streams = [list(references)]
    bleu_score, chrf_score = bleu.corpus_score(hypotheses, streams), chrf.corpus_score(hypotheses, streams)
    return Scores(bleu_score.score, chrf_score.score, str(bleu.get_signature()), str(chrf.get_signature()))


def perplexity(nats_per_token: float) -> float:
    """Exp of the mean cross-entropy; infinite where that overflows."""
    return math.exp(nats_per_token) if nats_per_token < 700 else math.inf
