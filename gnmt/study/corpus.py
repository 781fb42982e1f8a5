"""The study's corpus: a small vocabulary, ids, batches."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from gnmt.config import BatchConfig
from gnmt.data.batching import EvaluationBatches, TrainingBatches
from gnmt.data.bitext import Dataset, load_bitext
from gnmt.data.examples import encode_bitext, filter_by_length
from gnmt.data.padding import Batch
from gnmt.files import new_file
from gnmt.study.settings import StudyConfig
from gnmt.tokenizer import Tokenizer


class Corpus:
    """Batches for every run of a study.

    Args:
        config: of the study.
        folder: of the study; the vocabulary is trained into it by the first process and read by the others.
    """

    def __init__(self, config: StudyConfig, folder: Path) -> None:
        self._config = config
        texts = [
            load_bitext(part, config.source_lang, config.target_lang) for part in (config.train, config.validation)
        ]
        tokenizer = self._tokenizer(texts[0], folder / "tokenizer.model")
        train, validation = (encode_bitext(text, tokenizer) for text in texts)
        limits = BatchConfig(config.tokens_per_batch, max_length=min(100, config.tokens_per_batch))
        self._train = filter_by_length(train, limits, config.train.path)
        self.validation = list(EvaluationBatches(validation, config.tokens_per_batch))[: config.validation_batches]

    @property
    def probe_batch(self) -> Batch:
        """The validation batch whose shortest source is longest: gradients are followed through it."""
        return max(self.validation, key=lambda batch: int(batch.source_lengths.min()))

    def digest(self) -> str:
        """What tells this corpus, in this vocabulary and these batches, from others."""
        found = hashlib.sha256()
        for part in self._train.select_columns(["source", "target"]).with_format("numpy").iter(1000):
            for side in ("source", "target"):
                for row in part[side]:
                    found.update(np.asarray(row, dtype=np.int32).tobytes() + b"/")
        for batch in self.validation:
            found.update(batch.source.numpy().tobytes() + batch.target_output.numpy().tobytes())
        return found.hexdigest()

    def unigram_loss(self) -> float:
        """Validation loss, in nats per token, of a model that knows how often each target token occurs, and no more."""
        counts = np.ones(self._config.vocab_size)
        for row in self._train.select_columns(["target"]):
            np.add.at(counts, [*row["target"], Tokenizer.eos_id], 1)
        targets = torch.cat([batch.target_output[batch.target_mask] for batch in self.validation]).numpy()
        return float(-np.log(counts / counts.sum())[targets].mean())

    def _tokenizer(self, train: Dataset, path: Path) -> Tokenizer:
        if not path.exists():
            sentences = (row[side] for side in ("source", "target") for row in train)
            tokenizer = Tokenizer.train(sentences, self._config.vocab_size)
            with new_file(path) as partial:
                partial.write_bytes(tokenizer.model)
        return Tokenizer.load(path)

    def training(self, seed: int) -> Iterator[Batch]:
        """Training batches without end, the same ones for the same seed."""
        batches = TrainingBatches(self._train, self._config.tokens_per_batch, seed)
        while True:
            for batch in batches:
                yield batch
                batches.batch_done()
