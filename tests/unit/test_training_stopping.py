"""When a run ends early, and the line after each validation."""

import logging
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.trainer.states import TrainerFn

from gnmt.training.stopping import EarlyStopping


def fake_trainer():
    return SimpleNamespace(
        sanity_checking=False,
        fast_dev_run=False,
        is_global_zero=True,
        should_stop=False,
        current_epoch=0,
        global_step=0,
        state=SimpleNamespace(fn=TrainerFn.FITTING),
        strategy=SimpleNamespace(reduce_boolean_decision=lambda decision, all: decision),
        callback_metrics={},
    )


def validations(stopping, *checks):
    """Validate with (BLEU, loss) until the run is stopped; return the number of validations."""
    trainer = fake_trainer()
    for number, (bleu, loss) in enumerate(checks, start=1):
        scores = {"val/bleu": bleu, "val/loss": loss, "val/chrf": bleu}
        trainer.callback_metrics = {name: torch.tensor(score) for name, score in scores.items()}
        stopping.on_validation_end(trainer, None)
        if trainer.should_stop:
            return number
    return None


def by_bleu(patience=2):
    return EarlyStopping("val/bleu", mode="max", patience=patience, check_on_train_epoch_end=False)


@pytest.mark.parametrize(
    ("checks", "stopped_at"),
    [
        ([(0.0, 5.0), (0.0, 4.0), (0.0, 3.0), (0.0, 2.0), (0.0, 1.0)], None),  # BLEU stays at 0 while the loss falls
        ([(0.0, 5.0), (0.0, 4.0), (0.0, 4.0), (0.0, 4.1)], 4),
        ([(1.0, 5.0), (2.0, 6.0), (3.0, 7.0), (4.0, 8.0)], None),  # and the loss rises while BLEU does
        ([(1.0, 5.0), (0.9, 6.0), (0.8, 4.9), (0.7, 5.0), (0.6, 4.8), (0.5, 5.0), (0.4, 5.0)], 7),
        ([(1.0, float("nan")), (0.9, float("nan")), (0.8, float("nan"))], 3),
    ],
)
def test_patience_counts_validations_that_improve_neither_score_nor_loss(checks, stopped_at):
    assert validations(by_bleu(), *checks) == stopped_at


def by_loss(**settings):
    return EarlyStopping("val/loss", mode="min", patience=2, check_on_train_epoch_end=False, **settings)


def test_a_gain_of_loss_below_min_delta_is_none_where_loss_is_monitored(caplog):
    caplog.set_level(logging.INFO)
    checks = [(0.0, 5.0), (0.0, 4.9), (0.0, 4.89), (0.0, 4.88)]
    assert validations(by_loss(), *checks) is None
    assert validations(by_loss(min_delta=0.05), *checks) == 4
    assert "; val/loss is better than 4.900 by no more than min_delta; 2 of 2 " in caplog.records[-1].getMessage()


@pytest.mark.parametrize(
    ("stopping", "check", "told"),
    [
        (by_loss(), (0.0, float("nan")), "the best val/loss was 5.000; val/loss is not finite"),
        (
            by_loss(divergence_threshold=6.0),
            (0.0, 7.0),
            "the best val/loss was 5.000; val/loss went beyond divergence_threshold",
        ),
        (
            by_loss(stopping_threshold=3.0),
            (0.0, 2.0),
            "the best val/loss so far; val/loss reached stopping_threshold",
        ),
        (
            EarlyStopping("val/bleu", mode="max", stopping_threshold=9.0, check_on_train_epoch_end=False),
            (12.5, 4.0),
            "the best val/bleu so far; val/bleu reached stopping_threshold",
        ),
    ],
)
def test_any_end_is_told_with_its_reason(caplog, stopping, check, told):
    caplog.set_level(logging.INFO)
    assert validations(stopping, (1.0, 5.0), check, (1.5, 4.5)) == 2
    first, second = [record.getMessage() for record in caplog.records]
    assert "training ends" not in first
    assert second.endswith(f"; {told}, training ends")
    validations(stopping, (1.5, 4.5))  # of a run that goes on
    assert "training ends" not in caplog.records[-1].getMessage()


def test_the_count_and_the_best_loss_survive_a_checkpoint_but_patience_is_the_configuration_s():
    before, after = by_bleu(), by_bleu(patience=3)
    validations(before, (1.0, 5.0), (0.5, 6.0))
    after.load_state_dict(before.state_dict())
    assert (after.wait_count, after.best_loss, after.patience) == (1, 5.0, 3)
    assert validations(after, (0.5, 5.5), (0.5, 5.5)) == 2
    old = before.state_dict()
    del old["best_loss"]
    after.load_state_dict(old)  # of a checkpoint of an earlier version


def test_each_validation_is_told_in_a_line(caplog):
    caplog.set_level(logging.INFO)
    validations(by_bleu(), (10.0, 5.0), (12.5, 4.0), (11.0, 3.5), (11.0, 3.5), (11.0, 3.5))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 5
    assert lines[1] == "update 0: val/loss 4.000 nats per token, BLEU 12.50, chrF 12.50; the best val/bleu so far"
    assert lines[2].endswith("the best val/bleu was 12.500")
    assert lines[3].endswith("the best val/bleu was 12.500; 1 of 2 validations in a row without improvement")
    assert lines[4].endswith("2 of 2 validations in a row without improvement, training ends")


def test_a_run_that_ended_early_does_not_go_on_with_the_same_patience():
    stopping, trainer = by_bleu(), fake_trainer()
    stopping.on_train_start(trainer, None)
    assert not trainer.should_stop
    validations(stopping, (1.0, 5.0), (1.0, 5.0), (1.0, 5.0))
    stopping.on_train_start(trainer, None)
    assert trainer.should_stop
