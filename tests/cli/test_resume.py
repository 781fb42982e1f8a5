"""train.py and a run that is there already: what is kept, what is said, what is refused."""

import yaml
from conftest import assert_refused

from gnmt.files import locked


def read_config(folder):
    return yaml.safe_load((folder / "config.yaml").read_text())


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


def test_only_the_first_process_of_a_run_takes_its_folder(train, corpus):
    result = train(**{"trainer.devices": 2, "trainer.strategy": "ddp", "trainer.accelerator": "cpu"})
    assert result.returncode == 0, result.stderr.decode()
    assert (corpus / "run" / "model" / "model.safetensors").exists()
