"""The run folder: what it holds before and after, and what a resumed run takes from it."""

from pathlib import Path

import yaml

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
    names = {path.name for path in folder.iterdir() if not path.name.startswith("events.out.tfevents")}
    if "tokenizer.model" not in names:  # the first thing that a run writes: nothing here is ours
        return not names
    return names <= _BEFORE_FIRST_CHECKPOINT and not any((folder / "checkpoints").glob("*"))


def kept_precision(folder: Path) -> str | None:
    """The precision that a run was trained with so far; None if its `config.yaml` is not there or does not say."""
    try:
        settings = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        return str(settings["trainer"]["precision"])
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return None
