"""Gradient flow while training: logged at an interval, and drawn when training ends."""

import logging
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor
from torch.optim import Optimizer

from gnmt.diagnostics import gradients, layer_parameters, norms, plot_gradient_flow
from gnmt.errors import ConfigError
from gnmt.training.task import TranslationTask

logger = logging.getLogger(__name__)

# Rows that are kept for the picture; when there are more, every second one goes.
_MAX_HISTORY = 1000


class Diagnostics(Callback):
    """Measures each layer's gradient and update: `grad_norm/<layer>`, `update_ratio/<layer>`, `clipped_share`.

    Gradients are measured before clipping; an update ratio is the norm of an update over the norm of what it changed;
    the share is of this process' updates since the last measurement. The run folder gets `gradient_flow.png`.

    Args:
        every_n_steps: updates from one measurement to the next; 0 turns the diagnostics off.
    """

    def __init__(self, every_n_steps: int = 50) -> None:
        if every_n_steps < 0:
            raise ConfigError(f"diagnostics.every_n_steps is {every_n_steps}, expected at least 0")
        self._every = every_n_steps
        self._history: list[dict[str, float]] = []
        self._gradient_norms: dict[str, float] = {}
        self._weights: dict[str, list[Tensor]] = {}

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer) -> None:
        """Measure the gradients of an update that is due, and keep the weights that it will change."""
        if self._every and trainer.is_global_zero and trainer.global_step % self._every == 0:
            layers = layer_parameters(_task(pl_module).network)
            self._gradient_norms = norms(gradients(layers))
            self._weights = {name: [p.detach().clone() for p in group] for name, group in layers.items()}

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        """Measure the update, and log."""
        if not self._weights:
            return
        task = _task(pl_module)
        layers, before = layer_parameters(task.network), norms(self._weights)
        changes = {
            name: [parameter.detach() - old for parameter, old in zip(group, self._weights[name], strict=True)]
            for name, group in layers.items()
        }
        found = {f"grad_norm/{name}": value for name, value in self._gradient_norms.items()}
        for name, change in norms(changes).items():
            found[f"update_ratio/{name}"] = change / max(before[name], torch.finfo(torch.float32).tiny)
        found["clipped_share"] = task.take_clipped_share()
        for destination in trainer.loggers:
            destination.log_metrics(found, step=trainer.global_step - 1)  # as Lightning counts
        self._history.append({"step": trainer.global_step, **found})
        if len(self._history) > _MAX_HISTORY:
            del self._history[1::2]
        self._weights = {}

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Draw the picture."""
        self._draw(trainer)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Draw it also when training is interrupted or fails: a divergence is what one wants to look at."""
        self._draw(trainer)

    def _draw(self, trainer: L.Trainer) -> None:
        if not self._history or not trainer.is_global_zero:
            return
        try:
            plot_gradient_flow(self._history, Path(trainer.default_root_dir) / "gradient_flow.png")
        except OSError as error:  # a full disk must not keep the checkpoint behind this callback from being tried
            logger.warning("gradient_flow.png was not written: %s", error)

    def state_dict(self) -> dict[str, Any]:
        """What was measured so far: a resumed run draws all of it."""
        return {"history": self._history}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue the history."""
        self._history = list(state_dict["history"])


def _task(pl_module: L.LightningModule) -> TranslationTask:
    assert isinstance(pl_module, TranslationTask)
    return pl_module
