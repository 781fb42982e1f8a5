"""Callbacks that interrupt a run: at a chosen hook, or by Ctrl-C in the middle of an update or of a validation."""

import os
import signal

from lightning.pytorch.callbacks import Callback


class StopAt(Callback):
    def __init__(self, hook: str, step: int) -> None:
        self.hook, self.step = hook, step
        self.pressed = False

    def _at(self, hook, trainer):
        return hook == self.hook and trainer.global_step == self.step

    def on_train_batch_end(self, trainer, *_):
        if self._at("batch", trainer):
            raise KeyboardInterrupt

    def on_train_epoch_end(self, trainer, *_):
        if self._at("epoch", trainer):
            raise KeyboardInterrupt

    def _press_once(self):
        if not self.pressed:
            self.pressed = True
            os.kill(os.getpid(), signal.SIGINT)

    def on_before_backward(self, trainer, *_):
        if self._at("ctrl-c in update", trainer):
            self._press_once()

    def on_validation_batch_end(self, trainer, *_):
        if self._at("ctrl-c in validation", trainer):
            self._press_once()
