"""The lines that tell how far a run is."""

import logging
from types import SimpleNamespace

import pytest
import torch

from gnmt.training import progress
from gnmt.training.progress import Interval, ProgressLines


@pytest.fixture(name="clock")
def _clock(monkeypatch):
    """Time that passes only when a test says so."""
    clock = SimpleNamespace(now=100.0)
    for name in ("monotonic", "perf_counter"):
        monkeypatch.setattr(progress.time, name, lambda: clock.now)
    return clock


def test_an_interval_is_over_once(clock):
    interval = Interval(30)
    clock.now += 29
    assert not interval.is_over()
    clock.now += 2
    assert interval.is_over()
    assert not interval.is_over()
    clock.now += 30
    assert interval.is_over()


def test_a_line_tells_position_loss_speed_and_what_is_left(clock, caplog):
    caplog.set_level(logging.INFO)
    position = {"epoch": 2, "batches_done": 0}
    loader = SimpleNamespace(state_dict=lambda: position)
    trainer = SimpleNamespace(
        is_global_zero=True,
        datamodule=SimpleNamespace(training_batches=loader),
        num_training_batches=290,
        max_epochs=10,
        global_step=580,
        world_size=1,
    )
    told = ProgressLines(30)
    for _ in range(5):
        told.on_train_batch_start(trainer, None, None, 0)
        clock.now += 7
        position["batches_done"] += 1
        trainer.global_step += 1
        told.on_train_batch_end(trainer, None, {"nats": torch.tensor(2800.0), "tokens": 700}, None, 0)
        clock.now += 1  # a validation or whatever else
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "epoch 3 of 10, update 584 (4 of 290 in this epoch): train/loss 4.000 nats per token, 100 target tokens/s, "
        "0:33:22 left in this epoch"
    )
