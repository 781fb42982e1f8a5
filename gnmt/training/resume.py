"""Where a checkpoint stands in its run, and whether there is anything left to do."""

from pathlib import Path
from typing import NamedTuple

import torch
from lightning.pytorch import Trainer

from gnmt.checkpoint import load_model
from gnmt.errors import CheckpointError
from gnmt.training.stopping import EarlyStopping


class Position(NamedTuple):
    """How far a run was when a checkpoint was written.

    Attributes:
        epochs: whole ones.
        updates: of all epochs.
        validations_without_gain: in a row up to then, as early stopping counts; 0 if it watched something else.
    """

    epochs: int
    updates: int
    validations_without_gain: int


def read_position(checkpoint: Path, stopping: EarlyStopping) -> Position:
    """Read where a checkpoint of `train.py` stands; its weights are not loaded.

    Args:
        checkpoint: what is read.
        stopping: whose count is read.

    Raises:
        CheckpointError: it does not say.
    """
    try:
        found = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
        loop = found["loops"]["fit_loop"]
        (loader,) = loop["state_dict"]["combined_loader"]
        count = found["callbacks"].get(stopping.state_key, {"wait_count": 0})["wait_count"]
        is_whole = loop["epoch_loop.batch_progress"]["is_last_batch"]
        return Position(loader["epoch"] + int(is_whole), found["global_step"], count)
    except (AttributeError, KeyError, ValueError, TypeError, OSError, RuntimeError):
        raise CheckpointError(
            f"{checkpoint} does not say how far its run was; continue another one, or start anew without --ckpt_path"
        ) from None


def what_would_go_on(position: Position, trainer: Trainer, stopping: EarlyStopping) -> str | None:
    """What to change to continue a run that is finished under the present settings; None if it is not finished."""
    if trainer.max_epochs is not None and 0 <= trainer.max_epochs <= position.epochs:
        return "raise --trainer.max_epochs to go on"
    if 0 <= trainer.max_steps <= position.updates:
        return "raise --trainer.max_steps to go on"
    if position.validations_without_gain >= stopping.patience:
        return "it was stopped early; raise --early_stopping.patience to go on"
    return None


def is_exported(folder: Path, has_test: bool) -> bool:
    """Whether a run folder holds what a finished run leaves: the best checkpoint as a model, and its test translations.

    Args:
        folder: of the run.
        has_test: whether the run has a test corpus.
    """
    if has_test and not (folder / "test.txt").is_file():
        return False
    try:
        best, exported = load_model(folder / "checkpoints" / "best.ckpt"), load_model(folder / "model")
    except CheckpointError:
        return False
    weights, others = best.network.state_dict(), exported.network.state_dict()
    return weights.keys() == others.keys() and all(torch.equal(weights[name], others[name]) for name in weights)
