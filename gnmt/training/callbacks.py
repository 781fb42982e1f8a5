"""What happens around the training loop: position, interruption, checkpoints, logs."""

import csv
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import lightning as L
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter

from gnmt.data.padding import Batch
from gnmt.files import new_file
from gnmt.training.data import TranslationData


class BatchCounter(Callback):
    """Counts a batch as done when its update is, so that no checkpoint skips one; stands before other callbacks."""

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        """Tell the loader."""
        data: TranslationData = trainer.datamodule  # type: ignore[attr-defined]
        data.training_batches.batch_done()


class RunConfig(Callback):
    """Writes the configuration when the data has proved usable.

    Args:
        write: what writes it.
    """

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write it, in one process."""
        if trainer.is_global_zero:
            self._write()


class Interruption(Callback):
    """Turns the first Ctrl-C (or SIGTERM) into an end after the current batch or validation; a second one ends at once.

    The checkpoint that is then written lies between two updates, and a resumed run goes on exactly there.
    """

    def __init__(self) -> None:
        self._requested = False
        self._previous: dict[int, Any] = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take over the signals; only the main thread may."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._request)

    def _request(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _stop_if_requested(self) -> None:
        if self._requested:
            raise KeyboardInterrupt

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Stop between two updates, but not before a validation that is due: a resumed run would leave it out."""
        due = isinstance(trainer.val_check_batch, int) and (batch_idx + 1) % trainer.val_check_batch == 0
        if not due:
            self._stop_if_requested()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Stop after a validation at the end of an epoch."""
        self._stop_if_requested()

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Give the signals back."""
        self._restore()


class _LastCheckpoint(ModelCheckpoint):
    """`last.ckpt` after each validation and on interruption, but not when the run failed: its state may be broken."""

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Save if the user interrupted."""
        if isinstance(exception, KeyboardInterrupt):
            super().on_exception(trainer, pl_module, exception)


def checkpoints(folder: Path, monitor: str, mode: str) -> list[Callback]:
    """Two checkpoints: `best.ckpt` by a validation score, and `last.ckpt`."""
    shared: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False, "save_on_train_epoch_end": False}
    return [
        ModelCheckpoint(filename="best", monitor=monitor, mode=mode, save_top_k=1, **shared),
        _LastCheckpoint(filename="last", save_top_k=1, save_on_exception=True, **shared),
    ]


class _AppendingWriter(ExperimentWriter):
    """Continues an earlier `metrics.csv`, which Lightning's writer deletes, and never leaves an empty one."""

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        path = Path(self.metrics_file_path)
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        with new_file(path) as partial, partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=fieldnames)
            writer.writeheader()
            writer.writerows(rows)

    def _check_log_dir_exists(self) -> None:
        path = Path(self.metrics_file_path)
        if path.exists():
            with path.open(newline="") as file:
                self.metrics_keys = next(csv.reader(file), [])


class MetricsFile(CSVLogger):
    """Writes `metrics.csv` into a run folder.

    Args:
        run_folder: its place.
        append: whether to continue one that is there.
    """

    def __init__(self, run_folder: Path, append: bool) -> None:
        super().__init__(run_folder, name="", version="", flush_logs_every_n_steps=50)
        self._run_folder, self._append = run_folder, append

    @property
    def log_dir(self) -> str:
        """The run folder itself."""
        return str(self._run_folder)

    @property
    @rank_zero_experiment
    def experiment(self) -> _AppendingWriter:
        """The writer, made at the first use."""
        if not isinstance(self._experiment, _AppendingWriter):
            if not self._append:
                (self._run_folder / "metrics.csv").unlink(missing_ok=True)
            self._experiment = _AppendingWriter(self.log_dir)
        return self._experiment
