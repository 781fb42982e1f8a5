"""A callback that interrupts a run at a chosen point, as Ctrl-C would."""

from lightning.pytorch.callbacks import Callback


class StopAt(Callback):
    def __init__(self, hook: str, step: int) -> None:
        self.hook, self.step = hook, step

    def _stop(self, hook, trainer):
        if hook == self.hook and trainer.global_step == self.step:
            raise KeyboardInterrupt

    def on_train_batch_end(self, trainer, *_):
        self._stop("batch", trainer)

    def on_train_epoch_end(self, trainer, *_):
        self._stop("epoch", trainer)
