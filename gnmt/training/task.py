"""What is trained and how it is judged: the LightningModule. Shapes: see `gnmt.nn`."""

import logging
import math
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.distributed
from torch import Tensor
from torch.optim import Optimizer

from gnmt.checkpoint import REMOVED, Model, describe, without_removed
from gnmt.config import GNMTConfig, OptimizerConfig, SearchConfig
from gnmt.data.padding import Batch
from gnmt.errors import CheckpointError, ConfigError
from gnmt.lines import write_lines
from gnmt.metrics import Scores, perplexity, score
from gnmt.nn.gnmt import GNMT
from gnmt.nn.loss import LossSums, cross_entropy
from gnmt.optim import build_optimizer
from gnmt.training.data import TranslationData
from gnmt.training.progress import Interval
from gnmt.translator import Translator

logger = logging.getLogger(__name__)


class TranslationTask(L.LightningModule):
    """Trains a GNMT network; validates by loss and by translating.

    Args:
        network: the network; its vocab_size is the size of the vocabulary to be trained.
        optimizer: optimizer and learning-rate schedule.
        label_smoothing: share of the target probability that all pieces divide evenly.
        validation_search: how validation sentences are translated; greedy by default, because it is done often.
        test_search: how test sentences are translated.
        num_samples: sample translations that are logged after each validation.
    """

    def __init__(
        self,
        network: GNMTConfig,
        optimizer: OptimizerConfig,
        label_smoothing: float = 0.1,
        validation_search: SearchConfig = SearchConfig(beam_size=1),
        test_search: SearchConfig = SearchConfig(),
        num_samples: int = 3,
    ) -> None:
        super().__init__()
        if not 0 <= label_smoothing < 1 or num_samples < 0:
            raise ConfigError(
                f"label_smoothing {label_smoothing} and num_samples {num_samples}, expected [0, 1) and at least 0"
            )
        self.network = GNMT(network)
        self.optimizer_config = optimizer
        self.label_smoothing = label_smoothing
        self.searches = {"val": validation_search, "test": test_search}
        self.num_samples = num_samples
        self.test_scores: Scores | None = None
        self._loss_sums: list[LossSums] = []
        self._clipped, self._updates = torch.zeros(()), 0

    @property
    def translation_data(self) -> TranslationData:
        """The data module of the running trainer."""
        data: TranslationData = self.trainer.datamodule  # type: ignore[attr-defined]
        return data

    @property
    def model(self) -> Model:
        """Network, vocabulary and languages: what an export holds."""
        data = self.translation_data
        return Model(self.network, data.tokenizer, data.source_lang, data.target_lang)

    def configure_optimizers(self) -> Any:
        """The optimizer, and its schedule stepped after every update."""
        optimizer, schedule = build_optimizer(
            self.network, self.optimizer_config, self._total_steps(), fused=self.trainer.precision != "16-mixed"
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _total_steps(self) -> int:
        """Updates of the whole run.

        Lightning's own estimate would set up the loader before a checkpoint's position can be loaded into it.
        """
        trainer = self.trainer
        batches, limit = len(self.translation_data.training_batches), trainer.limit_train_batches
        per_epoch = min(batches, limit) if isinstance(limit, int) else int(batches * limit)
        by_epochs = -1 if trainer.max_epochs is None else per_epoch * trainer.max_epochs
        limits = [steps for steps in (trainer.max_steps, by_epochs) if steps >= 0]
        if not limits:
            raise ConfigError("no end of training: set trainer.max_epochs or trainer.max_steps")
        total, warmup = min(limits), self.optimizer_config.warmup_steps
        if warmup > total // 2:
            logger.warning("warm-up is cut from %d to %d updates, half of all", warmup, total // 2)
        return total

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip by the global norm, which is logged; Lightning's own way refuses fused optimizers."""
        if gradient_clip_algorithm not in (None, "norm"):
            raise ConfigError(f"gradient_clip_algorithm {gradient_clip_algorithm!r}, expected 'norm'")
        limit = gradient_clip_val or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), limit)
        self.log("grad_norm", norm)
        self._clipped = self._clipped + (norm > limit)  # a tensor: counting waits for no device
        self._updates += 1

    def take_clipped_share(self) -> float:
        """Share of the updates since the last call whose gradient was clipped."""
        share = float(self._clipped) / max(1, self._updates)
        self._clipped, self._updates = torch.zeros(()), 0
        return share

    def training_step(self, batch: Batch, batch_index: int) -> dict[str, Tensor | int]:
        """Loss of a batch, in nats per token of the global batch; and the sums that `ProgressLines` averages."""
        sums = self._loss(batch)
        if not sums.smoothed.isfinite():
            raise FloatingPointError(
                f"the loss is {float(sums.smoothed.detach())} at step {self.global_step}: training diverged; lower "
                "model.optimizer.learning_rate or trainer.gradient_clip_val"
            )
        self.log("train/loss", sums.nats / sums.tokens, prog_bar=True, batch_size=sums.tokens)
        loss = sums.smoothed * (self.trainer.world_size / self._global_tokens(sums.tokens))
        return {"loss": loss, "nats": sums.nats.detach(), "tokens": sums.tokens}

    def _loss(self, batch: Batch) -> LossSums:
        logits = self.network(batch.source, batch.source_lengths, batch.target_input, batch.target_mask)
        smoothing = self.label_smoothing if self.training else 0.0
        return cross_entropy(logits, batch.target_output[batch.target_mask], smoothing)

    def _global_tokens(self, tokens: int) -> float:
        """Tokens of this batch on all processes; Lightning averages gradients over processes, not over tokens."""
        if self.trainer.world_size == 1:
            return tokens
        total = torch.tensor(float(tokens), device=self.device)
        torch.distributed.all_reduce(total)
        return float(total)

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        """Loss of a batch."""
        self._loss_sums.append(self._loss(batch))

    def test_step(self, batch: Batch, batch_index: int) -> None:
        """Loss of a batch."""
        self._loss_sums.append(self._loss(batch))

    def on_validation_epoch_start(self) -> None:
        """Start a new sum."""
        self._loss_sums = []

    def on_test_epoch_start(self) -> None:
        """Start a new sum, and say what begins."""
        self._loss_sums = []
        logger.info("testing on %d lines", len(self.translation_data.texts("test")))

    def on_validation_epoch_end(self) -> None:
        """Log loss, perplexity, BLEU and chrF; keep the translations of this check and show some."""
        if self.trainer.sanity_checking:
            return
        hypotheses, _ = self._evaluate("val", f"validation/step-{self.global_step:07d}.txt")
        pairs = self.translation_data.texts("val")
        every = max(1, len(pairs) // max(1, self.num_samples))
        for i in range(0, len(pairs), every)[: self.num_samples]:
            row = pairs[i]
            logger.info(
                "  source     %s\n  hypothesis %s\n  reference  %s", row["source"], hypotheses[i], row["target"]
            )
        self.log("lr", self.trainer.optimizers[0].param_groups[0]["lr"])

    def on_test_epoch_end(self) -> None:
        """Log the test scores and keep the translations."""
        _, self.test_scores = self._evaluate("test", "test.txt")

    def _evaluate(self, stage: str, file: str) -> tuple[list[str], Scores]:
        """Log the mean loss of the batches and the scores of translating all lines, as `translate.py` would."""
        pairs = self.translation_data.texts(stage)
        loss = float(sum(sums.nats for sums in self._loss_sums)) / sum(sums.tokens for sums in self._loss_sums)
        translator = Translator(self.model, self.searches[stage], device=str(self.device))
        hypotheses, interval = [], Interval()
        for translation in translator.translate(pairs["source"]):
            hypotheses.append(translation.text)
            if interval.is_over():
                logger.info("translated %d of %d %s lines", len(hypotheses), len(pairs), stage)
        scores = score(hypotheses, list(pairs["target"]), self.translation_data.target_lang)
        self.log_dict(
            {
                f"{stage}/loss": loss,
                f"{stage}/ppl": perplexity(loss),
                f"{stage}/bleu": scores.bleu,
                f"{stage}/chrf": scores.chrf,
            },
            prog_bar=stage == "val",
        )
        if self.trainer.is_global_zero:
            write_lines(Path(self.trainer.default_root_dir) / file, hypotheses)
        return hypotheses, scores

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the checkpoint a self-contained model, and keep the state of the random numbers."""
        model = self.model
        tokenizer = torch.frombuffer(bytearray(model.tokenizer.model), dtype=torch.uint8)
        checkpoint["gnmt"] = {"description": describe(model), "tokenizer": tokenizer}
        checkpoint["rng_state"] = torch.get_rng_state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Check that the checkpoint belongs to this run and vocabulary, and restore the state of the random numbers."""
        carried, model = checkpoint["gnmt"], self.model
        found, wanted = carried["description"], describe(model)
        if found["network"].get(REMOVED):
            raise CheckpointError(
                f"the checkpoint was trained with {REMOVED} {found['network'][REMOVED]}, which this version cannot "
                "continue; translate with it as it is, or train with the version of gnmt that wrote it"
            )
        if without_removed(found) != wanted:
            raise CheckpointError(f"the checkpoint is of {found}, the run of {wanted}")
        if carried["tokenizer"].numpy().tobytes() != model.tokenizer.model:
            raise CheckpointError(
                "the checkpoint was trained with another vocabulary than the run folder's tokenizer.model"
            )
        torch.set_rng_state(checkpoint["rng_state"])
