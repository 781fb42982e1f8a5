"""When a run ends early, and what is said after each validation."""

import logging
import math
from typing import Any

import lightning as L
from lightning.pytorch import callbacks

logger = logging.getLogger(__name__)


class EarlyStopping(callbacks.EarlyStopping):
    """Lightning's early stopping, but `patience` counts only validations that improve neither `monitor` nor `val/loss`.

    On small corpora BLEU stays near 0 for many epochs while the loss falls: such a run is not at its end. One line
    after each validation says its scores and what they mean for the run.
    """

    best_loss = math.inf

    @property
    def is_exhausted(self) -> bool:
        """Whether there were as many validations without an improvement as `patience` allows."""
        return self.wait_count >= self.patience

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Let a run that is continued after its early end, with the same patience, end at once."""
        trainer.should_stop = trainer.should_stop or self.is_exhausted

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Count, and say how the run stands."""
        if trainer.sanity_checking:
            return
        scores = trainer.callback_metrics
        loss, is_best = float(scores["val/loss"]), bool(self.monitor_op(scores[self.monitor], self.best_score))
        if loss < self.best_loss:
            self.best_loss, self.wait_count = loss, -1  # which this validation, if it does not improve, raises to 0
        super().on_validation_end(trainer, pl_module)
        if trainer.is_global_zero:
            logger.info(
                "update %d: val/loss %.3f nats per token, BLEU %.2f, chrF %.2f; %s",
                trainer.global_step,
                loss,
                scores["val/bleu"],
                scores["val/chrf"],
                self._verdict(is_best),
            )

    def _verdict(self, is_best: bool) -> str:
        best = f"the best {self.monitor} so far" if is_best else f"the best {self.monitor} was {self.best_score:.3f}"
        if not self.wait_count:
            return best
        end = ", training ends" if self.is_exhausted else ""
        return f"{best}; {self.wait_count} of {self.patience} validations in a row without improvement{end}"

    def state_dict(self) -> dict[str, Any]:
        """What was reached so far."""
        return {**super().state_dict(), "best_loss": self.best_loss}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with what was reached, but with the patience of the present configuration."""
        super().load_state_dict({**state_dict, "patience": self.patience})
        self.best_loss = state_dict.get("best_loss", math.inf)
