"""How far a run is: a line every half minute, for log files and for terminals without a progress bar."""

import datetime
import logging
import time
from typing import Any

import lightning as L

from gnmt.training.data import TranslationData
from gnmt.training.speed import UpdateClock

logger = logging.getLogger(__name__)

SECONDS = 30.0


class Interval:
    """Tells when it is time to say something again.

    Args:
        seconds: from one time to the next; the first one is as far from the start.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds, self._start = seconds, time.monotonic()

    def is_over(self) -> bool:
        """Whether the seconds are over; then they begin anew."""
        now = time.monotonic()
        if now - self._start < self._seconds:
            return False
        self._start = now
        return True


class ProgressLines(UpdateClock):
    """Logs epoch, update, training loss, speed, and the time that is left in the epoch.

    Loss (nats per token, without smoothing) and speed (target tokens a second, validations not counted) are of the
    updates since the last line.

    Args:
        seconds: from one line to the next.
    """

    def __init__(self, seconds: float = SECONDS) -> None:
        super().__init__()
        self._interval = Interval(seconds)

    def restart(self) -> None:
        """Count from zero again, and sum the loss anew."""
        super().restart()
        self._nats = 0.0

    def counted(self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any) -> None:
        """Add the update's `nats` (scalar, summed over the batch), and say how far the run is when it is time."""
        self._nats = self._nats + outputs["nats"]  # a tensor: adding waits for no device
        if trainer.is_global_zero and self._interval.is_over():
            self._say(trainer)
            self.restart()

    def _say(self, trainer: L.Trainer) -> None:
        data: TranslationData = trainer.datamodule  # type: ignore[attr-defined]
        position = data.training_batches.state_dict()  # Lightning's epoch is one too high after some resumptions
        left = (trainer.num_training_batches - position["batches_done"]) * self.seconds / self.updates
        logger.info(
            "epoch %d%s, update %d (%d of %d in this epoch): train/loss %.3f nats per token, %s target tokens/s, "
            "%s left in this epoch",
            position["epoch"] + 1,
            f" of {trainer.max_epochs}" if trainer.max_epochs not in (None, -1) else "",
            trainer.global_step,
            position["batches_done"],
            trainer.num_training_batches,
            float(self._nats) / self.tokens,
            f"{self.tokens * trainer.world_size / self.seconds:,.0f}",
            datetime.timedelta(seconds=round(left)),
        )
