"""Lines in, translations out: windows of lines are sorted by length, searched together, and put back in order."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import torch

from gnmt.checkpoint import Model, load_model
from gnmt.checks import require, require_one_of
from gnmt.config import SearchConfig
from gnmt.engine import Engine
from gnmt.errors import ConfigError, DataError
from gnmt.inference.ensemble import Ensemble
from gnmt.inference.network import InferenceNetwork
from gnmt.inference.products import PRECISIONS, fastest_precision
from gnmt.search.constraints import Constraints
from gnmt.search.hypotheses import Hypothesis
from gnmt.segments import first_words, split_long, split_sentences
from gnmt.tokenizer import normalize


class TextHypothesis(NamedTuple):
    """One translation of a line.

    Attributes:
        text: detokenised.
        score: what hypotheses are ranked by, see `gnmt.search.hypotheses.Hypothesis`; of a line that was translated
            in parts, the sum over them.
        log_prob: of the whole translation, in nats.
        is_complete: False if it was cut off at the length limit.
        parts: of each part of the line that was translated alone, its ids and attention.
        first_words: the word of the text, counted from 0, in which each of these parts begins.
    """

    text: str
    score: float
    log_prob: float
    is_complete: bool
    parts: tuple[Hypothesis, ...]
    first_words: tuple[int, ...]


class Translation(NamedTuple):
    """What became of one line.

    Attributes:
        hypotheses: best first, no text twice; at least one, at most `SearchConfig.num_hypotheses`.
        source_tokens: tokens of the line.
        is_cropped: whether the line was longer than the limit, so that its end was not translated.
        sources: ids of each part of the line that was translated alone; one part as a rule.
        first_words: the word of the line, counted from 0, in which each of these parts begins.
    """

    hypotheses: list[TextHypothesis]
    source_tokens: int
    is_cropped: bool
    sources: tuple[list[int], ...]
    first_words: tuple[int, ...]

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text


class _Part(NamedTuple):
    """What is searched at once: text in the form of `normalize`, and its ids, perhaps more than the limit."""

    text: str
    ids: list[int]


# Lines read ahead: within them, lines of similar length share a batch, and they are written together.
WINDOW = 2000
ON_LONG = ("crop", "split", "error")
# Target languages that put no spaces between words.
_WITHOUT_SPACES = ("zh", "ja", "th")
_EMPTY = TextHypothesis("", 0.0, 0.0, True, (), ())
# Parts that one line can have: keys of search are line * _MAX_PARTS + part.
_MAX_PARTS = 1 << 20


class Translator:
    """Translates text with a trained model.

    Args:
        model: network, vocabulary and languages; several with one vocabulary decode together as an ensemble.
        search: beam size, number of hypotheses, penalties.
        device: where to compute: `cpu`, `cuda`, ..., or `auto` for a GPU if there is one.
        precision: of the weights' products: `fp32`, `bf16`, on CPUs `int8`, or `auto`: `bf16` where it is faster than
            `fp32`, which is measured when the translator is made.
        batch_size: limit of a batch, in sentences or in padded source tokens.
        batch_type: what `batch_size` counts, `sents` or `tokens`.
        max_input_length: tokens that are translated at once.
        on_long: what becomes of a longer line: its end is left out (`crop`), it is cut at ends of sentences and the
            parts' translations are joined (`split`), or it is an `error`.
        by_sentence: whether every line is cut at ends of sentences, however short.
        keep_attention: whether hypotheses carry their attention.

    Raises:
        ConfigError: a setting is not valid, or the device cannot compute at this precision.
    """

    def __init__(
        self,
        model: Model | Sequence[Model],
        search: SearchConfig | None = None,
        *,
        device: str = "auto",
        precision: str = "fp32",
        batch_size: int = 64,
        batch_type: str = "sents",
        max_input_length: int = 500,
        on_long: str = "crop",
        by_sentence: bool = False,
        keep_attention: bool = False,
    ) -> None:
        require_one_of(batch_type, ("sents", "tokens"), f"batch type {batch_type!r}")
        require_one_of(precision, PRECISIONS, f"precision {precision!r}")
        require_one_of(on_long, ON_LONG, f"on_long {on_long!r}")
        found = f"batch size {batch_size} and maximum input length {max_input_length}"
        require(min(batch_size, max_input_length) >= 1, found, "at least 1")
        self.search = search or SearchConfig()
        self.device = _device(device)
        self.precision = fastest_precision(self.device) if precision == "auto" else precision
        models = [model] if isinstance(model, Model) else list(model)
        self.tokenizer = models[0].tokenizer
        if any(each.tokenizer.model != self.tokenizer.model for each in models):
            raise ConfigError("models with different vocabularies, expected one vocabulary for all of an ensemble")
        self.source_lang, self.target_lang = models[0].source_lang, models[0].target_lang
        self.puts_spaces = (self.target_lang or "")[:2] not in _WITHOUT_SPACES
        networks = [InferenceNetwork(each.network.eval().to(self.device), self.precision) for each in models]
        decoder = networks[0] if len(networks) == 1 else Ensemble(networks)
        self._engine = Engine(decoder, self.device, batch_size, batch_type, keep_attention)
        self._max_input_length, self._on_long, self._by_sentence = max_input_length, on_long, by_sentence
        self._lines_seen = 0

    @classmethod
    def from_pretrained(
        cls, path: str | Path, search: SearchConfig | None = None, *, device: str = "auto", precision: str = "fp32"
    ) -> Self:
        """Load a run folder, a model folder or a `.ckpt` file.

        Raises:
            CheckpointError: it is not there or not whole.
        """
        return cls(load_model(path), search, device=device, precision=precision)

    def translate(self, lines: Iterable[str], window: int = WINDOW) -> Iterator[Translation]:
        """Translate a stream in bounded memory.

        Args:
            lines: source lines.
            window: lines read ahead; within them, lines of similar length share a batch.

        Yields:
            one translation for each line, in order.
        """
        lines = iter(lines)
        while block := list(itertools.islice(lines, window)):
            yield from self.translate_batch(block)

    def translate_batch(
        self,
        lines: Sequence[str],
        constraints: Sequence[Constraints] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[Translation]:
        """Translate some lines: one translation for each, in order. A line with nothing to see in it stays empty.

        Args:
            lines: source lines.
            constraints: demands on each line's translation; lines with a prefix or required
                sequences are not cut into parts.
            numbers: of the lines, for messages and for sampling; without them this translator counts on from its
                last line.

        Raises:
            DataError: a line is too long, and `on_long` is `error`.
            ConfigError: two lines have one number.
        """
        demands = constraints or [Constraints()] * len(lines)
        numbers = numbers or range(self._lines_seen + 1, self._lines_seen + 1 + len(lines))
        require(len(set(numbers)) == len(lines), f"{len(set(numbers))} numbers of {len(lines)} lines", "one for each")
        self._lines_seen = max(numbers, default=self._lines_seen)
        parts = [self._parts(*each) for each in zip(lines, demands, numbers, strict=True)]
        requests = {}
        for its_parts, demand, number in zip(parts, demands, numbers, strict=True):
            for i, part in enumerate(its_parts):
                requests[number * _MAX_PARTS + i] = (part.ids[: self._max_input_length], demand)
        found = self._engine.run(requests, self.search)
        return [
            self._assemble(line, its_parts, [found[number * _MAX_PARTS + i] for i in range(len(its_parts))])
            for line, its_parts, number in zip(lines, parts, numbers, strict=True)
        ]

    def score_batch(self, lines: Sequence[str], translations: Sequence[str]) -> list[TextHypothesis]:
        """Score given translations, each in the spelling that the tokenizer gives it and with its end.

        A complete translation that search found has the same numbers, if its pieces are the tokenizer's.

        Lines are not cropped or cut. An empty line, or a translation without pieces, gets what the network says of it;
        a source with nothing in it has log-probability 0 for an empty translation and minus infinity for another.

        Args:
            lines: source lines.
            translations: one of each.
        """
        encode, end = self.tokenizer.encode, (self.tokenizer.eos_id,)
        sources, targets = [encode(line) for line in lines], [encode(text) for text in translations]
        requests = {
            i: (source, Constraints(prefix=(*target, *end)))
            for i, (source, target) in enumerate(zip(sources, targets, strict=True))
            if source
        }
        greedy = dataclasses.replace(self.search, beam_size=1, num_hypotheses=1, temperature=0.0, top_k=0, top_p=1.0)
        found = self._engine.run(requests, dataclasses.replace(greedy, no_repeat_ngram_size=0))
        results = []
        for i, target in enumerate(targets):
            nothing = -math.inf if target else 0.0
            best = found[i][0] if i in found else Hypothesis((), nothing, nothing, True)
            parts, first_words = ((best,), (0,)) if i in found else ((), ())
            text = normalize(translations[i])
            results.append(TextHypothesis(text, best.score, best.log_prob, True, parts, first_words))
        return results

    def _parts(self, line: str, demand: Constraints, number: int) -> list[_Part]:
        """The parts of a line that are translated one by one; none if there is nothing to see in it."""
        encode, limit = self.tokenizer.encode, self._max_input_length
        is_cut = not (demand.prefix or demand.required)
        parts: list[_Part] = []
        for sentence in split_sentences(line) if self._by_sentence and is_cut else [line]:
            part = _Part(normalize(sentence), encode(sentence))
            is_long = len(part.ids) > limit
            if is_long and self._on_long == "error":
                raise DataError(
                    f"line {number} has {len(part.ids)} tokens, expected at most {limit}: raise --max-input-length, or "
                    "choose --on-long crop or split"
                )
            if is_long and self._on_long == "split" and is_cut:
                texts = split_long(sentence, limit, lambda text: len(encode(text)))
                parts += [_Part(normalize(text), encode(text)) for text in texts]
            else:
                parts.append(part)
        return [part for part in parts if part.ids]

    def _assemble(self, line: str, sources: list[_Part], found: list[list[Hypothesis]]) -> Translation:
        """Join the parts' hypotheses by rank: the second best of the line is made of the second best of each part."""
        texts: dict[str, TextHypothesis] = {}
        for rank in range(max(map(len, found), default=0)):
            parts = tuple(hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in found)
            hypothesis = self._joined(parts)
            texts.setdefault(hypothesis.text, hypothesis)
            if len(texts) == self.search.num_hypotheses:
                break
        return Translation(
            list(texts.values()) or [_EMPTY],
            sum(len(part.ids) for part in sources),
            any(len(part.ids) > self._max_input_length for part in sources),
            tuple(part.ids[: self._max_input_length] for part in sources),
            tuple(first_words(normalize(line), [part.text for part in sources])),
        )

    def _joined(self, parts: tuple[Hypothesis, ...]) -> TextHypothesis:
        texts = [self.tokenizer.decode(part.tokens) for part in parts]
        text = (" " if self.puts_spaces else "").join(filter(None, texts))
        return TextHypothesis(
            text,
            sum(part.score for part in parts),
            sum(part.log_prob for part in parts),
            all(part.is_complete for part in parts),
            parts,
            tuple(first_words(text, texts)),
        )


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ConfigError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device
