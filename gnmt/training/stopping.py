"""When a run ends early, and what is said after each validation."""

import logging
import math
from typing import Any

import lightning as L
from lightning.pytorch import callbacks
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from torch import Tensor

logger = logging.getLogger(__name__)

_TRANSLATION_SCORES = ("val/bleu", "val/chrf")
# Lightning's own messages are not used: that of the divergence threshold has its sign the wrong way round.
_OTHER_ENDS = {
    EarlyStoppingReason.NON_FINITE_METRIC: "is not finite",
    EarlyStoppingReason.STOPPING_THRESHOLD: "reached stopping_threshold",
    EarlyStoppingReason.DIVERGENCE_THRESHOLD: "went beyond divergence_threshold",
}


class EarlyStopping(callbacks.EarlyStopping):
    """Lightning's early stopping, but if `monitor` scores translations, `patience` begins anew with a lower loss too.

    On small corpora BLEU stays near 0 for many epochs while the loss falls: such a run is not at its end. `min_delta`
    is in the unit of `monitor`; beside BLEU or chrF any lower `val/loss` counts. One line after each validation says
    its scores and what they mean for the run.
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
        comparison = self._comparison(scores[self.monitor])
        self.stopping_reason = EarlyStoppingReason.NOT_STOPPED  # as a run that goes on after an earlier end
        loss = float(scores["val/loss"])
        if loss < self.best_loss:
            self.best_loss = loss
            if self.monitor in _TRANSLATION_SCORES:
                self.wait_count = -1  # which this validation, if it does not improve the score, raises to 0
        super().on_validation_end(trainer, pl_module)
        self.wait_count = max(0, self.wait_count)  # where something else than patience ended the run
        if trainer.is_global_zero:
            logger.info(
                "update %d: val/loss %.3f nats per token, BLEU %.2f, chrF %.2f; %s",
                trainer.global_step,
                loss,
                scores["val/bleu"],
                scores["val/chrf"],
                self._verdict(comparison),
            )

    def _comparison(self, score: Tensor) -> str:
        if self.monitor_op(score - self.min_delta, self.best_score):
            return f"the best {self.monitor} so far"
        if self.monitor_op(score, self.best_score):
            return f"{self.monitor} is better than {self.best_score:.3f} by no more than min_delta"
        return f"the best {self.monitor} was {self.best_score:.3f}"

    def _verdict(self, comparison: str) -> str:
        verdict = comparison
        if self.wait_count:
            verdict += f"; {self.wait_count} of {self.patience} validations in a row without improvement"
        if self.is_exhausted:
            verdict += ", training ends"
        elif self.stopping_reason in _OTHER_ENDS:
            verdict += f"; {self.monitor} {_OTHER_ENDS[self.stopping_reason]}, training ends"
        return verdict

    def state_dict(self) -> dict[str, Any]:
        """What was reached so far."""
        return {**super().state_dict(), "best_loss": self.best_loss}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with what was reached, but with the patience of the present configuration."""
        super().load_state_dict({**state_dict, "patience": self.patience})
        self.best_loss = state_dict.get("best_loss", math.inf)
