"""The callback's numbers against an update whose size is known."""

from types import SimpleNamespace

import pytest
import torch

from gnmt.config import GNMTConfig, OptimizerConfig
from gnmt.errors import ConfigError
from gnmt.training.diagnostics import Diagnostics
from gnmt.training.task import TranslationTask


class Recorder:
    def __init__(self):
        self.rows = []

    def log_metrics(self, metrics, step):
        self.rows.append((step, metrics))


@pytest.fixture(name="task")
def _task(monkeypatch):
    network = GNMTConfig(vocab_size=20, hidden_size=8, num_encoder_layers=2, num_decoder_layers=2)
    task = TranslationTask(network, OptimizerConfig())
    monkeypatch.setattr(task, "log", lambda *_, **__: None)
    return task


def update(task, diagnostics, trainer, size=1.0):
    """One step of plain gradient descent along the weights themselves: the gradient of `size` / 2 * |w|^2."""
    optimizer = torch.optim.SGD(task.parameters(), lr=0.1)
    for parameter in task.parameters():
        parameter.grad = size * parameter.detach().clone()
    diagnostics.on_before_optimizer_step(trainer, task, optimizer)
    task.configure_gradient_clipping(optimizer, 1e-3 if size > 1 else 1e9)
    optimizer.step()
    trainer.global_step += 1
    diagnostics.on_train_batch_end(trainer, task)


def test_ratios_norms_and_clipped_share_are_right(task):
    trainer = SimpleNamespace(global_step=0, is_global_zero=True, loggers=[Recorder()])
    diagnostics = Diagnostics(every_n_steps=2)
    weights = float(torch.nn.utils.get_total_norm(task.network.encoder.parameters()))
    for size in (1.0, 2.0, 1.0, 1.0):
        update(task, diagnostics, trainer, size)
    (first_step, first), (second_step, second) = trainer.loggers[0].rows
    assert (first_step, second_step) == (0, 2)
    assert first["update_ratio/encoder_2"] == pytest.approx(0.1, rel=1e-5)
    assert first["grad_norm/encoder"] == pytest.approx(weights, rel=1e-5)
    assert first["clipped_share"] == 0.0
    assert second["clipped_share"] == 0.5


def test_the_history_survives_a_checkpoint_and_stays_bounded(task):
    trainer = SimpleNamespace(global_step=0, is_global_zero=True, loggers=[])
    diagnostics = Diagnostics(every_n_steps=1)
    for _ in range(1005):
        update(task, diagnostics, trainer, 1e-6)
    again = Diagnostics()
    again.load_state_dict(diagnostics.state_dict())
    history = again.state_dict()["history"]
    assert 500 <= len(history) <= 1000
    assert [row["step"] for row in history] == sorted(row["step"] for row in history)
    assert history[-1]["step"] == 1005


def test_nothing_is_measured_when_it_is_off_and_a_negative_interval_is_refused(task):
    trainer = SimpleNamespace(global_step=0, is_global_zero=True, loggers=[Recorder()])
    update(task, Diagnostics(every_n_steps=0), trainer)
    assert trainer.loggers[0].rows == []
    with pytest.raises(ConfigError, match="every_n_steps is -1"):
        Diagnostics(-1)
