"""Lines in, translations out: windows of lines are sorted by length, batched, searched, and put back in order."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import torch

from gnmt.checkpoint import Model, load_model
from gnmt.config import SearchConfig
from gnmt.data.padding import pad_sources
from gnmt.errors import ConfigError
from gnmt.search.beam import beam_search


class TextHypothesis(NamedTuple):
    """One translation of a line.

    Attributes:
        text: detokenised.
        score: what hypotheses are ranked by, see `gnmt.search.beam.Hypothesis`.
        log_prob: of the whole translation, in nats.
        is_complete: False if it was cut off at the length limit.
    """

    text: str
    score: float
    log_prob: float
    is_complete: bool


class Translation(NamedTuple):
    """What became of one line.

    Attributes:
        hypotheses: best first, no text twice; at least one, at most `SearchConfig.num_hypotheses`.
        source_tokens: tokens of the line.
        is_cropped: whether the line was longer than the limit, so that its end was not translated.
    """

    hypotheses: list[TextHypothesis]
    source_tokens: int
    is_cropped: bool

    @property
    def text(self) -> str:
        """The best translation."""
        return self.hypotheses[0].text


# Lines read ahead: within them, lines of similar length share a batch, and they are written together.
WINDOW = 2000
_EMPTY = TextHypothesis("", 0.0, 0.0, True)


class Translator:
    """Translates text with a trained model.

    Args:
        model: network, vocabulary and languages.
        search: beam size, number of hypotheses, penalties.
        device: where to compute: `cpu`, `cuda`, ..., or `auto` for a GPU if there is one.
        batch_size: limit of a batch, in sentences or in padded source tokens.
        batch_type: what `batch_size` counts, `sents` or `tokens`.
        max_input_length: tokens of a line that are translated; the rest of a longer one is cropped and reported.
    """

    def __init__(
        self,
        model: Model,
        search: SearchConfig | None = None,
        *,
        device: str = "auto",
        batch_size: int = 64,
        batch_type: str = "sents",
        max_input_length: int = 500,
    ) -> None:
        if batch_type not in ("sents", "tokens"):
            raise ConfigError(f"batch type {batch_type!r}, expected 'sents' or 'tokens'")
        if batch_size < 1 or max_input_length < 1:
            raise ConfigError(
                f"batch size {batch_size} and maximum input length {max_input_length}, expected at least 1"
            )
        self.search = search or SearchConfig()
        self.device = _device(device)
        self.network = model.network.eval().to(self.device)
        self.tokenizer = model.tokenizer
        self.source_lang, self.target_lang = model.source_lang, model.target_lang
        self._batch_size, self._batch_type = batch_size, batch_type
        self._max_input_length = max_input_length

    @classmethod
    def from_pretrained(cls, path: str | Path, search: SearchConfig | None = None, *, device: str = "auto") -> Self:
        """Load a run folder, a model folder or a `.ckpt` file.

        Raises:
            CheckpointError: it is not there or not whole.
        """
        return cls(load_model(path), search, device=device)

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

    def translate_batch(self, lines: Sequence[str]) -> list[Translation]:
        """Translate some lines: one translation for each, in order. A line with nothing to see in it stays empty."""
        encoded = [self.tokenizer.encode(line) for line in lines]
        hypotheses = self.search_ids([ids[: self._max_input_length] for ids in encoded])
        return [
            Translation(found if ids else [_EMPTY], len(ids), len(ids) > self._max_input_length)
            for ids, found in zip(encoded, hypotheses, strict=True)
        ]

    def search_ids(self, sources: Sequence[Sequence[int]]) -> list[list[TextHypothesis]]:
        """Search for each source (ids without special tokens); no hypotheses for an empty one."""
        results: list[list[TextHypothesis]] = [[] for _ in sources]
        for batch in self._batches([len(ids) for ids in sources]):
            source, lengths = pad_sources([sources[i] for i in batch])
            found = beam_search(
                self.network,
                source.to(self.device),
                lengths.to(self.device),
                self.search,
                bos_id=self.tokenizer.bos_id,
                eos_id=self.tokenizer.eos_id,
            )
            for i, hypotheses in zip(batch, found, strict=True):
                texts: dict[str, TextHypothesis] = {}
                for h in hypotheses:
                    text = self.tokenizer.decode(h.tokens)
                    texts.setdefault(text, TextHypothesis(text, h.score, h.log_prob, h.is_complete))
                results[i] = list(texts.values())
        return results

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Positions of non-empty lines, longest first, so that a batch that is too large fails at once."""
        batch: list[int] = []
        for i in sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i]):
            cost = (len(batch) + 1) * (lengths[batch[0]] if batch and self._batch_type == "tokens" else 1)
            if batch and cost > self._batch_size:
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ConfigError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from None
    return device
