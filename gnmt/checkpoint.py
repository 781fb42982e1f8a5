"""The self-contained model: a folder that holds all that translating needs, written whole or not at all.

A training checkpoint (`.ckpt`) carries the same under the key `gnmt`, as plain values. Nothing here unpickles code.
"""

import dataclasses
import json
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch

from gnmt.config import GNMTConfig
from gnmt.errors import CheckpointError, ConfigError
from gnmt.files import new_folder
from gnmt.nn.gnmt import GNMT
from gnmt.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

FORMAT = 2
# A setting of earlier models of this format: it acted on training alone, so that they translate the same without it.
REMOVED = "recurrent_dropout"
WEIGHTS, CONFIG, TOKENIZER, CARD = FILES = ("model.safetensors", "config.json", "tokenizer.model", "README.md")


class Model(NamedTuple):
    """A network with its vocabulary and languages."""

    network: GNMT
    tokenizer: Tokenizer
    source_lang: str
    target_lang: str


def describe(model: Model) -> dict[str, Any]:
    """The part of a model that is neither weights nor vocabulary, as plain values."""
    return {
        "format": FORMAT,
        "source_lang": model.source_lang,
        "target_lang": model.target_lang,
        "network": dataclasses.asdict(model.network.config),
    }


def without_removed(description: dict[str, Any]) -> dict[str, Any]:
    """The description as this version would have written it: without the setting `REMOVED`."""
    network = {**description["network"]}
    network.pop(REMOVED, None)
    return {**description, "network": network}


def save_model(model: Model, folder: Path, card: str) -> None:
    """Write a model folder, in place of an older one only when the new one is whole.

    Args:
        model: what to write.
        folder: its place.
        card: text of the model card.
    """
    with new_folder(folder) as partial:
        weights = {name: parameter.detach() for name, parameter in model.network.named_parameters()}  # tied ones once
        try:
            safetensors.torch.save_file(weights, partial / WEIGHTS)
        except safetensors.SafetensorError as error:  # what it makes of a full disk
            raise OSError(f"{folder / WEIGHTS}: {_first_line(error)}") from None
        (partial / CONFIG).write_text(json.dumps(describe(model), indent=2) + "\n", encoding="utf-8")
        (partial / TOKENIZER).write_bytes(model.tokenizer.model)
        (partial / CARD).write_text(card, encoding="utf-8")


def load_model(path: str | Path) -> Model:
    """Read a model in evaluation mode on the CPU.

    Args:
        path: a run folder (its `model/` is taken), a model folder, or a training checkpoint `.ckpt`.

    Raises:
        CheckpointError: it is missing, incomplete, damaged or something else.
    """
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"model {path} does not exist; name a run folder, a model folder or a .ckpt file")
    if path.is_file():
        return _load_training_checkpoint(path)
    return _load_folder(path if (path / CONFIG).exists() else path / "model", path)


def _load_folder(folder: Path, named: Path) -> Model:
    missing = [name for name in FILES[:3] if not (folder / name).is_file()]
    if missing:
        hint = "train or export the model again"
        if not folder.is_dir():
            folder, missing = named, ["model/"]
            hint = "name a run folder whose training has ended, a model folder, or RUN/checkpoints/best.ckpt"
        raise CheckpointError(f"model folder {folder} is incomplete: {', '.join(missing)} is missing; {hint}")
    try:
        description = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return _build(
            description,
            lambda network: _load_weights(network, safetensors.torch.load_file(folder / WEIGHTS)),
            Tokenizer.load(folder / TOKENIZER),
            folder,
        )
    except (ValueError, OSError, RecursionError, safetensors.SafetensorError) as error:
        raise CheckpointError(f"model folder {folder} is damaged: {_first_line(error)}") from None


def _load_weights(network: GNMT, weights: dict[str, torch.Tensor]) -> None:
    expected = {name for name, _ in network.named_parameters()}
    if different := expected.symmetric_difference(weights):
        raise RuntimeError(f"other weights than the network's: {', '.join(sorted(different))}")
    if not all(tensor.is_floating_point() for tensor in weights.values()):
        raise RuntimeError("weights that are no floating-point numbers")
    network.load_state_dict(weights, strict=False)  # what is tied to a loaded weight is loaded with it


def _load_training_checkpoint(path: Path) -> Model:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch remarks on foreign pickles before it refuses them
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        description = checkpoint["gnmt"]["description"]
        prefix = "network."
        state = {k.removeprefix(prefix): v for k, v in checkpoint["state_dict"].items() if k.startswith(prefix)}
        tokenizer = Tokenizer(checkpoint["gnmt"]["tokenizer"].numpy().tobytes())
    except Exception:  # a foreign file makes torch's reader fail in any way
        raise CheckpointError(
            f"{path} is no checkpoint of this program (or it is damaged); nothing was run from it"
        ) from None
    return _build(description, lambda network: network.load_state_dict(state), tokenizer, path)


def _build(description: Any, load_weights: Callable[[GNMT], object], tokenizer: Tokenizer, path: Path) -> Model:
    try:
        if description["format"] != FORMAT:
            raise CheckpointError(
                f"{path} has format {description['format']!r}, this version reads {FORMAT}; "
                "train the model again, or use the version of gnmt that wrote it"
            )
        network = GNMT(GNMTConfig(**without_removed(description)["network"]))
        languages = str(description["source_lang"]), str(description["target_lang"])
        load_weights(network)
    except KeyError as error:
        raise CheckpointError(f"{path} does not fit together: {error} is missing") from None
    except (TypeError, RuntimeError, ConfigError) as error:
        raise CheckpointError(f"{path} does not fit together: {_first_line(error)}") from None
    if tokenizer.vocab_size != network.config.vocab_size:
        raise CheckpointError(
            f"{path}: the tokenizer has {tokenizer.vocab_size} pieces, the network {network.config.vocab_size}"
        )
    return Model(network.eval(), tokenizer, *languages)


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
