"""Report on translations of the default corpus' test lines: `python data/evaluate.py runs/default/test.txt`.

Prints Markdown: BLEU and chrF of the translations and of plain copying of the source, in how many lines every
placeholder survived, and 20 random lines.
"""

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

from home_assistant import PLACEHOLDER, SOURCE_LANG

from gnmt.errors import DataError, run_program
from gnmt.lines import read_lines
from gnmt.metrics import score

SAMPLES = 20
SAMPLE_SEED = 1


def surviving_placeholders(sources: list[str], hypotheses: list[str]) -> tuple[int, int]:
    """Lines whose translation has exactly the source's placeholders, and lines that have any in their source."""
    pairs = [
        (Counter(PLACEHOLDER.findall(s)), Counter(PLACEHOLDER.findall(h)))
        for s, h in zip(sources, hypotheses, strict=True)
    ]
    wanted = [(source, hypothesis) for source, hypothesis in pairs if source]
    return sum(source == hypothesis for source, hypothesis in wanted), len(wanted)


def report(sources: list[str], references: list[str], hypotheses: list[str], target_lang: str) -> str:
    """The report as Markdown."""
    translated = score(hypotheses, references, target_lang)
    copied = score(sources, references, target_lang)
    survived, lines = surviving_placeholders(sources, hypotheses)
    rng = random.Random(SAMPLE_SEED)
    samples = "\n".join(
        f"| {_cell(sources[i])} | {_cell(hypotheses[i])} | {_cell(references[i])} |"
        for i in sorted(rng.sample(range(len(sources)), min(SAMPLES, len(sources))))
    )
    return f"""| {len(sources)} test lines | BLEU | chrF |
|---|---|---|
| translated | {translated.bleu:.2f} | {translated.chrf:.2f} |
| the source copied | {copied.bleu:.2f} | {copied.chrf:.2f} |

Signatures: `{translated.bleu_signature}`, `{translated.chrf_signature}`.
Placeholders such as `{{name}}` survived unchanged in {survived} of the {lines} lines that have any.

| source | translation | reference |
|---|---|---|
{samples}
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Run the program; exit status 0."""
    parser = argparse.ArgumentParser(description="Report on translations of the test lines.", allow_abbrev=False)
    parser.add_argument("hypotheses", type=Path, help="translations of the test lines, such as runs/default/test.txt")
    parser.add_argument("--target-lang", default="de", help="language of the corpus (default: de)")
    arguments = parser.parse_args()
    corpus = Path(__file__).resolve().parent / "home_assistant" / f"{SOURCE_LANG}-{arguments.target_lang}"
    sources = list(read_lines(corpus / f"test.{SOURCE_LANG}"))
    references = list(read_lines(corpus / f"test.{arguments.target_lang}"))
    hypotheses = list(read_lines(arguments.hypotheses))
    if len(hypotheses) != len(sources):
        raise DataError(f"{arguments.hypotheses} has {len(hypotheses)} lines, the test corpus {len(sources)}")
    print(report(sources, references, hypotheses, arguments.target_lang), end="")
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main))
