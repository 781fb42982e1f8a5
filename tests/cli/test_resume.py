"""train.py and a run that is there already: what is kept, what is said, what is refused."""

import torch
import yaml
from conftest import assert_refused

from gnmt.files import locked


def read_config(folder):
    return yaml.safe_load((folder / "config.yaml").read_text())


def updates_of(folder):
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]


def snapshot(folder):
    """What lies in a folder and when it was written; the lock is opened anew by each run."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_a_run_keeps_the_precision_that_was_chosen_for_it(train, corpus):
    result = train()
    assert b"measured: bf16-mixed takes" in result.stderr
    chosen = read_config(corpus / "run")["trainer"]["precision"]
    assert f"precision {chosen} (measured".encode() in result.stderr
    other = {"32-true": "bf16-mixed", "bf16-mixed": "32-true"}[chosen]
    more = train(**{"ckpt_path": "last", "trainer.max_epochs": 2, "trainer.precision": other})
    assert f"precision {other} (named now; the run was trained with {chosen} so far)".encode() in more.stderr
    # As on another machine, where a measurement would find otherwise.
    last = train(**{"ckpt_path": "last", "trainer.max_epochs": 3})
    assert f"precision {other} (of the run that is continued)".encode() in last.stderr
    assert read_config(corpus / "run")["trainer"]["precision"] == other


def test_a_folder_in_use_is_refused(train, corpus):
    folder = corpus / "run"
    with locked(folder):
        assert_refused(train(), "is in use by another process")
    assert train().returncode == 0
    with locked(folder):
        assert_refused(train(), "is in use by another process")
        assert_refused(train(ckpt_path="last"), "is in use by another process")
    assert_refused(train(), "is not empty")


def test_only_the_first_process_of_a_run_takes_its_folder_and_tells_what_it_does(train, corpus):
    result = train(**{"trainer.devices": 2, "trainer.strategy": "ddp", "trainer.accelerator": "cpu"})
    assert result.returncode == 0, result.stderr.decode()
    assert (corpus / "run" / "model" / "model.safetensors").exists()
    lines = {"GNMT with 1 encoder": 1, "training on 64 sentence pairs": 1, "  source  ": 3, "testing on 4 lines": 1}
    assert {told: result.stderr.decode().count(told) for told in lines} == lines


def test_a_resumed_run_says_where_it_goes_on(train, corpus):
    assert train(**{"trainer.max_epochs": 2}).returncode == 0
    updates = updates_of(corpus / "run")
    result = train(**{"ckpt_path": "last", "trainer.max_epochs": 3})
    last = corpus / "run" / "checkpoints" / "last.ckpt"
    assert f"continuing {last} after 2 epochs and {updates} updates\n".encode() in result.stderr
    assert result.stdout.startswith(b"BLEU")


def test_a_finished_run_says_so_and_is_not_tested_again(train, corpus):
    folder = corpus / "run"
    assert train().returncode == 0
    before = snapshot(folder)
    result = train(ckpt_path="last")
    assert (result.returncode, result.stdout) == (0, b"")
    assert f"the run in {folder} is finished (1 epochs".encode() in result.stderr
    assert b"raise --trainer.max_epochs to go on" in result.stderr
    assert snapshot(folder) == before
    (folder / "test.txt").unlink()
    result = train(ckpt_path="last")
    assert b"test and export are left" in result.stderr
    assert result.stdout.startswith(b"BLEU")
    assert (folder / "test.txt").is_file()


def test_an_early_end_is_an_end(train, corpus):
    settings = {"model.optimizer.learning_rate": 0.0, "early_stopping.patience": 1, "trainer.max_epochs": 9}
    assert train(**settings).returncode == 0
    updates = updates_of(corpus / "run")
    result = train(**settings, ckpt_path="last")
    assert b"stopped early; raise --early_stopping.patience to go on" in result.stderr
    (corpus / "run" / "test.txt").unlink()
    assert train(**settings, ckpt_path="last").stdout.startswith(b"BLEU")
    assert updates_of(corpus / "run") == updates
    more = train(**{**settings, "early_stopping.patience": 2}, ckpt_path="last")
    assert more.stdout.startswith(b"BLEU")
    assert updates_of(corpus / "run") > updates
    updates = updates_of(corpus / "run")
    other = train(**{**settings, "early_stopping.monitor": "val/chrf"}, ckpt_path="last")
    assert other.stdout.startswith(b"BLEU")
    assert updates_of(corpus / "run") > updates
