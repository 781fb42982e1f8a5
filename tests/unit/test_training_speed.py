"""Target tokens a second, against a clock that a test moves."""

from types import SimpleNamespace

from gnmt.training import speed
from gnmt.training.speed import Throughput


def test_throughput_is_of_the_updates_since_it_was_logged_last(monkeypatch):
    clock, logged = SimpleNamespace(now=100.0), []
    monkeypatch.setattr(speed.time, "perf_counter", lambda: clock.now)
    trainer = SimpleNamespace(global_step=0, log_every_n_steps=2)
    task = SimpleNamespace(log=lambda name, value, prog_bar: logged.append((name, value)))
    throughput = Throughput()
    for tokens, seconds in ((100, 1), (200, 2), (50, 1), (70, 2)):
        throughput.on_train_batch_start(trainer, task, None, 0)
        clock.now += seconds
        trainer.global_step += 1
        throughput.on_train_batch_end(trainer, task, {"tokens": tokens}, None, 0)
        clock.now += 9  # a validation
    assert logged == [("train/tokens_per_second", 100.0), ("train/tokens_per_second", 40.0)]
