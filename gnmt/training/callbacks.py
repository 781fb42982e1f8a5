"""What happens around the training loop: speed, logs that survive a resume, a progress bar that leaves stdout alone."""

import csv
import time
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter

from gnmt.data.padding import Batch


def checkpoints(folder: Path, monitor: str, mode: str) -> list[Callback]:
    """Two checkpoints: `best.ckpt` by a validation score, and `last.ckpt` after each validation and on interruption."""
    shared: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False, "save_on_train_epoch_end": False}
    return [
        ModelCheckpoint(filename="best", monitor=monitor, mode=mode, save_top_k=1, **shared),
        ModelCheckpoint(filename="last", save_top_k=1, save_on_exception=True, **shared),
    ]


class Throughput(Callback):
    """Logs `train/tokens_per_second`: target tokens of this process over wall time, validation left out."""

    def __init__(self) -> None:
        self._tokens, self._seconds, self._start = 0, 0.0, 0.0

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        """Stop it, and log at the trainer's interval."""
        self._seconds += time.perf_counter() - self._start
        self._tokens += int(batch.target_mask.sum())
        if trainer.global_step % trainer.log_every_n_steps == 0:  # type: ignore[attr-defined]
            pl_module.log("train/tokens_per_second", self._tokens / self._seconds, prog_bar=True)
            self._tokens, self._seconds = 0, 0.0


class _AppendingWriter(ExperimentWriter):
    """Lightning's writer deletes an earlier `metrics.csv`; a resumed run must continue it."""

    def _check_log_dir_exists(self) -> None:
        path = Path(self.metrics_file_path)
        if path.exists():
            with path.open(newline="") as file:
                self.metrics_keys = next(csv.reader(file), [])


class MetricsFile(CSVLogger):
    """Writes `metrics.csv` into a run folder and continues it after a resume.

    Args:
        run_folder: its place.
    """

    def __init__(self, run_folder: Path) -> None:
        super().__init__(run_folder, name="", version="", flush_logs_every_n_steps=50)
        self._run_folder = run_folder

    @property
    def log_dir(self) -> str:
        """The run folder itself."""
        return str(self._run_folder)

    @property
    def experiment(self) -> _AppendingWriter:
        """The writer, made at the first use."""
        if not isinstance(self._experiment, _AppendingWriter):
            self._experiment = _AppendingWriter(self.log_dir)
        return self._experiment
