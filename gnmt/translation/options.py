"""The command line of translate.py."""

import argparse
from typing import NoReturn

from gnmt.config import SearchConfig
from gnmt.errors import ConfigError
from gnmt.inference.products import PRECISIONS
from gnmt.tokenizer import normalize
from gnmt.translator import ON_LONG


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        """Print one line to stderr and leave with status 2."""
        self.exit(2, f"error: {message} (--help lists the options)\n")


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line; option names may be written with underscores.

    Raises:
        ConfigError: options that contradict each other.
    """
    parser = Parser(
        description="Translate text: one UTF-8 line in, one line out, always and in order.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _add_files(parser)
    _add_search(parser)
    _add_machine(parser)
    options = parser.parse_args([_hyphenated(argument) for argument in arguments])
    _check(options)
    return options


def _hyphenated(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else argument


def _add_files(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("text in and out").add_argument
    add("-m", "--model", nargs="+", required=True, help="run folder, model folder or .ckpt; several are an ensemble")
    add("-i", "--input", default="-", help="text to translate, - is standard input")
    add("-o", "--output", default="-", help="file to write, - is standard output; it appears when it is complete")
    add("--resume-output", action="store_true", help="go on where an interrupted run to the same --output stopped")
    add("-n", "--n-best", type=int, default=1, help="lines written for each input line, best first")
    add("--with-scores", action="store_true", help="write score TAB log-probability TAB translation")
    add("--format", choices=("text", "json"), default="text", help="json: one object for each input line")
    add("--alignments", metavar="FILE", help="write word links such as 0-0 1-2, source word first, one line a line")
    add("--attention-plot", metavar="FOLDER", help="draw the attention of each line into FOLDER/LINE.png")
    add("--reference", help="file of reference translations; BLEU and chrF go to standard error")
    add("--score-only", action="store_true", help="do not translate: score the --reference, N lines each with -n N")
    add("--report-mismatch", action="store_true", help="warn where numbers, URLs or e-mail addresses differ")
    add("-q", "--quiet", action="store_true", help="only errors and scores on standard error")
    add("-v", "--verbose", action="store_true", help="progress on standard error")


def _add_search(parser: argparse.ArgumentParser) -> None:
    defaults = SearchConfig()
    add = parser.add_argument_group("search").add_argument
    add("-b", "--beam-size", type=int, default=defaults.beam_size, help="hypotheses kept while searching; 1 is greedy")
    add("--length-penalty", type=float, default=defaults.length_penalty, help="alpha of the length normalisation")
    add("--coverage-penalty", type=float, default=defaults.coverage_penalty, help="beta of the coverage penalty")
    add("--max-length-factor", type=float, default=defaults.max_length_factor, help="output tokens per input token")
    add("--token-pruning", type=float, default=defaults.token_pruning, help="nats below the best next token")
    add("--hypothesis-pruning", type=float, default=defaults.hypothesis_pruning, help="score below the best finished")
    add("--stop-margin", type=float, default=defaults.stop_margin, help="end when all others score this much lower")
    add("--no-repeat-ngram-size", type=int, default=0, help="no n-gram of this size comes twice; 0 allows all")
    add("--temperature", type=float, default=0.0, help="above 0: draw --n-best translations at random")
    add("--top-k", type=int, default=0, help="draw among this many most probable tokens; 0 for all")
    add("--top-p", type=float, default=1.0, help="draw among the tokens that have this probability together")
    add("--seed", type=int, default=0, help="of drawing; a line's samples depend on it and on the line's number")
    add(
        "--exclude",
        nargs="+",
        default=[],
        metavar="WORD",
        help="words or phrases that no translation may contain as whole words",
    )
    add(
        "--constraints",
        metavar="FILE",
        help='for each input line an object {"prefix": "...", "include": [...], "exclude": [...]} or a blank line',
    )


def _add_machine(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("long text and the machine").add_argument
    add("--max-input-length", type=int, default=500, help="tokens that are translated at once")
    add("--on-long", choices=ON_LONG, default="crop", help="longer lines: leave out the end, split at sentences, stop")
    add("--paragraphs", action="store_true", help="lines up to a blank one are one text: one output line for each")
    add("--batch-size", type=int, default=64, help="sentences or source tokens translated at once")
    add("--batch-type", choices=("sents", "tokens"), default="sents", help="what --batch-size counts")
    add("--device", default="auto", help="cpu, cuda, cuda:1, ...; auto takes a GPU if there is one")
    add("--devices", default="auto", help="processes on CPU cores, or GPUs; auto: cores, at most 8, or one GPU")
    add("--precision", choices=PRECISIONS, default="fp32", help="of products; auto: bf16 where it is faster, else fp32")


def _check(options: argparse.Namespace) -> None:
    if options.score_only and not options.reference:
        raise ConfigError("--score-only without --reference: name the file of the translations to be scored")
    if options.resume_output and (options.output == "-" or options.input == "-"):
        raise ConfigError("--resume-output with a standard stream, expected files for --input and --output")
    if options.resume_output and (options.reference or options.paragraphs):
        raise ConfigError("--resume-output with --reference or --paragraphs, expected it without them")
    if options.resume_output and options.alignments == "-":
        raise ConfigError("--resume-output with --alignments to standard output, expected a file for them")
    if options.paragraphs and options.constraints:
        raise ConfigError("--paragraphs with --constraints: a demand is on one sentence; write one sentence a line")
    if options.score_only and (options.temperature or options.constraints or options.exclude or options.paragraphs):
        raise ConfigError("--score-only with sampling, constraints or paragraphs, expected it without them")
    if options.devices != "auto" and not (options.devices.isdecimal() and int(options.devices) >= 1):
        raise ConfigError(f"--devices {options.devices}, expected auto or a number of at least 1")
    if not all(map(normalize, options.exclude)):
        raise ConfigError("--exclude with a word that has nothing to see in it, expected words")
    if options.temperature and options.constraints:
        raise ConfigError("--temperature with --constraints, expected only one of them")
