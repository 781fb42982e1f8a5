"""What happened to the lines: remarks on single ones, counts for the summary, scores against references."""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from gnmt.translation.demands import Demand
from gnmt.translation.formats import mismatches
from gnmt.translation.units import Unit
from gnmt.translator import Translation, Translator

_CROPPED, _CUT_OFF = "cropped", "cut off at the length limit"
_UNMET, _MISMATCHED = "against their demands", "with other numbers or addresses than the source"
_CROPPED_REMARK = "too long, {} tokens: what is beyond {} at once was left out (--max-input-length, --on-long)"


class Account:
    """Remarks on lines, counted.

    Args:
        options: the parsed command line.
        translator: whose translations they are.
        references: one for each line, if the translations are to be scored.

    Raises:
        ConfigError: translations into this language cannot be scored here.
    """

    def __init__(self, options: argparse.Namespace, translator: Translator, references: Sequence[str] | None) -> None:
        self._options, self._references = options, references
        self._whole_words, self._target_lang = translator.puts_spaces, translator.target_lang
        self._counts: Counter[str] = Counter()
        self._best: list[str] = []
        if references is not None:
            from gnmt.metrics import check_target_lang  # loading sacrebleu takes a while, and only scoring needs it

            check_target_lang(self._target_lang)

    def remarks(self, unit: Unit, translation: Translation, demand: Demand) -> list[str]:
        """What a reader of this line should know."""
        best, options = translation.hypotheses[0], self._options
        if self._references is not None:
            self._best.append(best.text)
        found = []
        if translation.is_cropped:
            found.append((_CROPPED, _CROPPED_REMARK.format(translation.source_tokens, options.max_input_length)))
        if not best.is_complete:
            found.append((_CUT_OFF, "the translation reached its length limit (--max-length-factor)"))
        if unmet := self._unmet(translation, demand):
            found.append((_UNMET, unmet))
        if options.report_mismatch and (different := mismatches(unit.text, best)):
            found.append((_MISMATCHED, f"differs from its source in: {', '.join(different)}"))
        self._counts.update(kind for kind, _ in found)
        return [remark for _, remark in found]

    def _unmet(self, translation: Translation, demand: Demand) -> str:
        """What the best translation has against the demand, and how many of the others have something; or nothing."""
        best, *others = (demand.unmet(each.text, whole_words=self._whole_words) for each in translation.hypotheses)
        found = [f"the translation {', '.join(best)}"] if best else []
        if number := sum(map(bool, others)):
            found.append(f"other translations that do not meet their demands: {number} of {len(others)}")
        return "; ".join(found)

    def summary(self) -> str:
        """The counts, each behind a comma."""
        kinds = (_CROPPED, _CUT_OFF, _UNMET, _MISMATCHED)
        return "".join(f", {self._counts[kind]} {kind}" for kind in kinds if self._counts[kind])

    def print_scores(self) -> None:
        """Score all translations against the references, if there are any."""
        if self._references is None:
            return
        from gnmt.metrics import score

        if self._references or self._best:
            print(score(self._best, self._references, self._target_lang), file=sys.stderr)
        else:
            print("no lines, so there is nothing to score", file=sys.stderr)
