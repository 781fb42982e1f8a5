"""How fast a run is: the time of its updates, and the target tokens in them."""

import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback


class UpdateClock(Callback):
    """Counts updates, their target tokens on this process, and their seconds, without validations; tells nothing."""

    def __init__(self) -> None:
        self._start = 0.0
        self.restart()

    def restart(self) -> None:
        """Count from zero again."""
        self.updates, self.tokens, self.seconds = 0, 0, 0.0

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop it, and count.

        Args:
            trainer: of the run.
            pl_module: what is trained.
            outputs: `tokens` and what else the training step returned.
            batch: what was trained on.
            batch_idx: its number in the epoch.
        """
        self.seconds += time.perf_counter() - self._start
        self.updates += 1
        self.tokens += outputs["tokens"]
        self.counted(trainer, pl_module, outputs)

    def counted(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any) -> None:
        """Do something with the numbers, which an update has just been added to."""


class Throughput(UpdateClock):
    """Logs `train/tokens_per_second`: target tokens of this process over the time of its updates."""

    def counted(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any) -> None:
        """Log at the trainer's interval."""
        if trainer.global_step % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            pl_module.log("train/tokens_per_second", self.tokens / self.seconds, prog_bar=True)
            self.restart()
