"""train.py and a run that is there already: what is kept, what is said, what is refused."""

import yaml


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
