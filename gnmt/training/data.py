"""What is trained on: the LightningDataModule that takes corpora to batches."""

import functools
import logging
from pathlib import Path

import lightning as L

from gnmt.config import BatchConfig, CorpusConfig, TokenizerConfig
from gnmt.data.batching import EvaluationBatches, TrainingBatches
from gnmt.data.bitext import Dataset, load_bitext
from gnmt.data.examples import encode_bitext, filter_by_length
from gnmt.errors import CheckpointError, ConfigError
from gnmt.files import new_file
from gnmt.metrics import check_target_lang
from gnmt.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


class TranslationData(L.LightningDataModule):
    """Reads the corpora, trains the vocabulary on the training text, tokenises once, and batches.

    Args:
        source_lang: language code of the source, such as `en`.
        target_lang: language code of the target.
        train: training corpus.
        validation: corpus for the checks during training.
        test: corpus for the final score; none if absent.
        tokenizer: the vocabulary.
        batch: batch size and length limits.
        vocab_size: set from `model.network.vocab_size`.
        seed: set from `seed_everything`; decides the order of the batches.
    """

    def __init__(
        self,
        source_lang: str,
        target_lang: str,
        train: CorpusConfig,
        validation: CorpusConfig,
        test: CorpusConfig | None = None,
        tokenizer: TokenizerConfig = TokenizerConfig(),
        batch: BatchConfig = BatchConfig(),
        vocab_size: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if source_lang == target_lang:
            raise ConfigError(f"source_lang and target_lang are both {source_lang!r}, expected two languages")
        check_target_lang(target_lang)
        self.source_lang, self.target_lang = source_lang, target_lang
        self._corpora = {"train": train, "val": validation} | ({"test": test} if test else {})
        self._tokenizer_config, self._batch_config = tokenizer, batch
        self._vocab_size, self._seed = vocab_size, seed
        self._texts: dict[str, Dataset] = {}
        self._examples: dict[str, Dataset] = {}
        self.keeps_vocabulary = False  # a resumed run goes on with the vocabulary of its folder
        self.tokenizer: Tokenizer

    @property
    def has_test(self) -> bool:
        """Whether there is a test corpus."""
        return "test" in self._corpora

    def texts(self, stage: str) -> Dataset:
        """The sentence pairs of `val` or `test`, as they were read."""
        return self._texts[stage]

    @property
    def _tokenizer_path(self) -> Path:
        assert self.trainer is not None
        return Path(self.trainer.default_root_dir) / "tokenizer.model"

    def prepare_data(self) -> None:
        """Fill the caches, in one process: texts, vocabulary, ids."""
        texts = {stage: self._read(stage) for stage in self._corpora}
        if not self.keeps_vocabulary:
            tokenizer = self._make_tokenizer(texts["train"])
            with new_file(self._tokenizer_path) as partial:
                partial.write_bytes(tokenizer.model)
            self.keeps_vocabulary = True
        tokenizer = self._load_tokenizer()
        for text in texts.values():
            encode_bitext(text, tokenizer)

    def setup(self, stage: str) -> None:
        """Load what is cached, in every process."""
        if self._examples:
            return
        self.tokenizer = self._load_tokenizer()
        for name in self._corpora:
            text = self._read(name)
            examples = encode_bitext(text, self.tokenizer)
            if name == "train":
                examples = filter_by_length(examples, self._batch_config, self._corpora["train"].path)
                logger.info("training on %d sentence pairs", len(examples))
            self._texts[name], self._examples[name] = text, examples

    def _read(self, stage: str) -> Dataset:
        return load_bitext(self._corpora[stage], self.source_lang, self.target_lang)

    def _make_tokenizer(self, train: Dataset) -> Tokenizer:
        config = self._tokenizer_config
        if config.path:
            return Tokenizer.load(Path(config.path))
        step = max(1, -(-2 * len(train) // config.max_sentences))
        sampled = train.select(range(0, len(train), step))
        logger.info("training a vocabulary of %d pieces on %d sentence pairs", self._vocab_size, len(sampled))
        sentences = (row[side] for side in ("source", "target") for row in sampled)
        return Tokenizer.train(sentences, self._vocab_size, config.model_type)

    def _load_tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.load(self._tokenizer_path)
        if tokenizer.vocab_size != self._vocab_size:
            raise CheckpointError(
                f"{self._tokenizer_path} has {tokenizer.vocab_size} pieces but model.network.vocab_size is "
                f"{self._vocab_size}; set it to {tokenizer.vocab_size}"
            )
        return tokenizer

    @functools.cached_property
    def training_batches(self) -> TrainingBatches:
        """Batches of this process for one epoch after the other."""
        assert self.trainer is not None
        return TrainingBatches(
            self._examples["train"],
            self._batch_config.tokens_per_batch,
            self._seed,
            self.trainer.global_rank,
            self.trainer.world_size,
        )

    def train_dataloader(self) -> TrainingBatches:
        """The training batches."""
        return self.training_batches

    def val_dataloader(self) -> EvaluationBatches:
        """All validation pairs, in every process."""
        return EvaluationBatches(self._examples["val"], self._batch_config.tokens_per_batch)

    def test_dataloader(self) -> EvaluationBatches:
        """All test pairs."""
        return EvaluationBatches(self._examples["test"], self._batch_config.tokens_per_batch)
