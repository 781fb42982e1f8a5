"""A small model must learn; a run that was stopped must go on exactly where it was."""

import csv
import random
from pathlib import Path

import pytest
import torch


def write_corpus(folder, name, sources):
    for lang, lines in (("aa", sources), ("bb", [source[::-1] for source in sources])):
        (folder / f"{name}.{lang}").write_text("".join(line + "\n" for line in lines))


@pytest.fixture(name="digits", scope="module")
def _digits(tmp_path_factory):
    """Digit strings and their reversals: the pairs of a language that needs attention to be learnt."""
    folder = tmp_path_factory.mktemp("digits")
    rng = random.Random(1)
    sources = list(dict.fromkeys("".join(rng.choices("0123456789", k=rng.randint(3, 8))) for _ in range(6500)))
    for name, rows in (("train", sources[600:]), ("validation", sources[:100]), ("test", sources[100:600])):
        write_corpus(folder, name, rows)
    return folder


@pytest.fixture(name="train", scope="module")
def _train(run, digits):
    def train(folder, expected_status=0, **settings):
        options = {
            "trainer.default_root_dir": folder,
            "trainer.precision": "32-true",
            "data.source_lang": "aa",
            "data.target_lang": "bb",
            **{f"data.{name}.path": digits / f"{name}.{{lang}}" for name in ("train", "validation", "test")},
            "data.batch.tokens_per_batch": 400,
            "model.network.vocab_size": 271,
            "model.network.hidden_size": 64,
            "model.network.num_encoder_layers": 2,
            "model.network.num_decoder_layers": 2,
            "model.network.dropout": 0.0,
            "model.label_smoothing": 0.0,
            "model.num_samples": 0,
            "diagnostics.every_n_steps": 0,
            "model.optimizer.learning_rate": 4e-3,
            "model.optimizer.warmup_steps": 100,
            "early_stopping.monitor": "val/chrf",
            **settings,
        }
        flat = (text for key, value in options.items() for text in (f"--{key}", str(value)))
        result = run("train.py", *flat, PYTHONPATH=str(Path(__file__).parent))
        assert result.returncode == expected_status, result.stderr.decode()
        return folder

    return train


def test_two_small_layers_learn_to_reverse_digits(train, run, digits, tmp_path):
    folder = train(tmp_path / "run", **{"trainer.max_epochs": 6})
    result = run("translate.py", "-m", folder, "-i", digits / "test.aa")
    found, expected = result.stdout.decode().split("\n"), (digits / "test.bb").read_text().split("\n")
    assert len(found) == len(expected) == 501
    correct = sum(map(str.__eq__, found, expected)) - 1
    assert correct / 500 > 0.99


STOPS = [("batch", 8), ("epoch", 12), ("ctrl-c in update", 8), ("ctrl-c in update", 11), ("ctrl-c in validation", 12)]


@pytest.fixture(name="small", scope="module")
def _small(tmp_path_factory):
    """Settings of a run of three epochs with 6 batches each, dropout included."""
    folder = tmp_path_factory.mktemp("small")
    rng = random.Random(2)
    write_corpus(folder, "small", ["".join(rng.choices("0123456789", k=7)) for _ in range(192)])
    return {
        "data.train.path": folder / "small.{lang}",
        "data.validation.path": folder / "small.{lang}",
        "model.network.hidden_size": 16,
        "model.network.dropout": 0.2,
        "trainer.max_epochs": 3,
        "trainer.log_every_n_steps": 1,
        "early_stopping.monitor": "val/loss",
        "early_stopping.mode": "min",
    }


@pytest.fixture(name="whole", scope="module")
def _whole(train, small, tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole") / "run", **small)


@pytest.mark.parametrize(("hook", "step"), STOPS)
def test_a_resumed_run_equals_an_uninterrupted_one(train, small, whole, tmp_path, hook, step):
    """Stopped within an epoch, after its last batch, after its validation, and by Ctrl-C at awkward moments."""
    stop = {"trainer.callbacks+": "stop_at.StopAt", "trainer.callbacks.hook": hook, "trainer.callbacks.step": step}
    stopped = train(tmp_path / "run", expected_status=130, **small, **stop)
    stopped_at = torch.load(stopped / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert stopped_at == step + (hook == "ctrl-c in update")
    train(stopped, **small, ckpt_path="last")
    states = [torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True) for folder in (whole, stopped)]
    assert states[0]["global_step"] == states[1]["global_step"] == 18
    for name, weights in states[0]["state_dict"].items():
        assert torch.equal(weights, states[1]["state_dict"][name]), name
    (expected, checks), (found, checks_found) = losses(whole), losses(stopped)
    assert found.items() <= expected.items()
    assert len(found) >= len(expected) - 1  # the update at which it was stopped is not logged
    assert checks == checks_found == 3


def losses(folder):
    """The logged training losses by step, and how many validations there were."""
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    steps = {row["step"]: row["train/loss"] for row in rows if row["train/loss"]}
    return steps, sum(bool(row["val/loss"]) for row in rows)
