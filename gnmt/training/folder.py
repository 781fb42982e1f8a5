"""The run folder: what it holds before and after, who writes to it, and what a resumed run takes from it."""

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import yaml
from lightning.pytorch.utilities import rank_zero_only

from gnmt.files import LOCK, locked

# What a run writes before its first checkpoint; a folder with nothing else holds nothing to lose.
_BEFORE_FIRST_CHECKPOINT = {
    "config.yaml",
    "hparams.yaml",
    "metrics.csv",
    "tokenizer.model",
    "checkpoints",
    "validation",
    "gradient_flow.png",
}


def is_fresh(folder: Path) -> bool:
    """Whether a folder that exists holds nothing, or nothing but the start of a run that saved no checkpoint."""
    names = {path.name for path in folder.iterdir() if not path.name.startswith("events.out.tfevents")} - {LOCK}
    if "tokenizer.model" not in names:  # the first thing that a run writes: nothing here is ours
        return not names
    return names <= _BEFORE_FIRST_CHECKPOINT and not any((folder / "checkpoints").glob("*"))


def is_first_process() -> bool:
    """Whether this is the first of a run's processes, on the first of its machines.

    The processes that Lightning starts run `train.py` anew, with their rank in the environment; so do those of torchrun
    and SLURM. On the other machines of a run that was started by hand only NODE_RANK tells.
    """
    rank: int = rank_zero_only.rank  # type: ignore[attr-defined]
    return rank == 0 and int(os.environ.get("NODE_RANK", "0")) == 0


def only_run_in(folder: Path) -> AbstractContextManager[None]:
    """Keep other runs out of a folder; the first process does it for all processes of the run.

    Raises:
        ConfigError: another run has it.
    """
    return locked(folder) if is_first_process() else nullcontext()


def kept_precision(folder: Path) -> str | None:
    """The precision that a run was trained with so far; None if its `config.yaml` is not there or leaves it open."""
    try:
        settings = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        precision = settings["trainer"]["precision"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return None
    return None if precision is None else str(precision)
