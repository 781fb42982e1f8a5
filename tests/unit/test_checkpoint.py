"""Models written and read back; whatever is not whole is refused, and nothing is ever run from a file."""

import json
import pickle
import shutil

import pytest
import torch

from gnmt.checkpoint import REMOVED, describe, load_model, save_model
from gnmt.errors import CheckpointError


def test_round_trip_keeps_weights_vocabulary_and_languages(model, tmp_path):
    save_model(model, tmp_path / "run" / "model", "card")
    for path in (tmp_path / "run", tmp_path / "run" / "model"):
        again = load_model(path)
        for name, tensor in model.network.state_dict().items():
            assert torch.equal(again.network.state_dict()[name], tensor)
        assert again.tokenizer.model == model.tokenizer.model
        assert (again.source_lang, again.target_lang) == ("en", "de")
        assert again.network.output.weight is again.network.target_embedding.weight
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["model"]


def test_a_new_export_replaces_the_old_one(model, tmp_path):
    save_model(model, tmp_path / "model", "first")
    save_model(model, tmp_path / "model", "second")
    assert (tmp_path / "model" / "README.md").read_text() == "second"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.model", "config.json"])
def test_an_incomplete_folder_is_refused(model_folder, tmp_path, name):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match="incomplete"):
        load_model(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.model", "config.json"])
def test_a_damaged_folder_is_refused(model_folder, tmp_path, name):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match="damaged"):
        load_model(folder)


def change(folder, **changes):
    description = json.loads((folder / "config.json").read_text())
    if isinstance(changes.get("network"), dict):
        changes["network"] = {**description["network"], **changes["network"]}
    (folder / "config.json").write_text(json.dumps({**description, **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 99}, "format 99"),
        ({"network": {"hidden_size": 8}}, "does not fit together"),
        ({"network": {"unheard_of": 8}}, "does not fit together"),
        ({"network": {"dropout": 3.0}}, "does not fit together"),
        ({"network": "unheard of"}, "does not fit together"),
    ],
)
def test_a_folder_that_contradicts_itself_is_refused(model_folder, tmp_path, changes, message):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    change(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        load_model(folder)


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_a_model_with_the_setting_that_was_removed_loads_as_without_it(model_folder, model, tmp_path, value):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    change(folder, network={REMOVED: value})
    description = json.loads((folder / "config.json").read_text())
    carried = {"description": description, "tokenizer": torch.tensor(list(model.tokenizer.model), dtype=torch.uint8)}
    state = {f"network.{name}": weights for name, weights in model.network.state_dict().items()}
    torch.save({"gnmt": carried, "state_dict": state}, tmp_path / "last.ckpt")
    for path in (folder, tmp_path / "last.ckpt"):
        again = load_model(path)
        assert describe(again) == describe(model)
        for name, weights in model.network.state_dict().items():
            assert torch.equal(again.network.state_dict()[name], weights)


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_booby_trapped_checkpoint_runs_nothing(tmp_path):
    for write in (torch.save, lambda bomb, path: path.write_bytes(pickle.dumps(bomb))):
        path, trace = tmp_path / "evil.ckpt", tmp_path / "PWNED"
        write({"gnmt": Bomb(trace)}, path)
        with pytest.raises(CheckpointError, match="nothing was run"):
            load_model(path)
        assert not trace.exists()


def test_what_is_no_model_is_explained(tmp_path):
    with pytest.raises(CheckpointError, match="does not exist"):
        load_model(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="model/ is missing"):
        load_model(tmp_path)
    for content in (b"hello", b".", b"", b"PK\x03\x04"):
        (tmp_path / "text.ckpt").write_bytes(content)
        with pytest.raises(CheckpointError, match="no checkpoint"):
            load_model(tmp_path / "text.ckpt")
    for value in (torch.zeros(3), {"gnmt": 1}, [1]):
        torch.save(value, tmp_path / "other.ckpt")
        with pytest.raises(CheckpointError, match="no checkpoint"):
            load_model(tmp_path / "other.ckpt")
