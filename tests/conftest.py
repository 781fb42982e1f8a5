"""Small texts and models that many tests share; everything is made here, nothing is downloaded."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gnmt.checkpoint import Model, load_model, save_model
from gnmt.config import GNMTConfig
from gnmt.nn.gnmt import GNMT
from gnmt.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[1]

SUBJECTS = {"The light": "Das Licht", "The door": "Die Tür", "A sensor": "Ein Sensor", "The battery": "Die Batterie"}
PREDICATES = {"is on": "ist an", "is off": "ist aus", "was found": "wurde gefunden", "has failed": "ist ausgefallen"}
PLACES = {
    "in {room}": "in {room}",
    "today": "heute",
    "at 10:30": "um 10:30 Uhr",
    "on \u201cfloor 2\u201d": "auf \u201eEtage 2\u201c",
}

TEXT = (
    "The light is on.\n\nA sensor was found today. The door is off.\nin {room} at 10:30\n\u200b\nThe battery\n".encode()
)
NUM_LINES = 6

SMALL_RUN = {
    "model.network.vocab_size": 320,
    "model.network.hidden_size": 8,
    "model.network.num_encoder_layers": 1,
    "model.network.num_decoder_layers": 1,
    "data.batch.tokens_per_batch": 300,
    "trainer.max_epochs": 1,
    "trainer.log_every_n_steps": 1,
    "diagnostics.every_n_steps": 0,  # drawing takes seconds
}

# What a run leaves in its folder, event files with a longer name.
RUN_FOLDER = {
    ".lock",
    "checkpoints",
    "config.yaml",
    "events.out.tfevents",
    "gradient_flow.png",
    "hparams.yaml",
    "metrics.csv",
    "model",
    "test.txt",
    "tokenizer.model",
    "validation",
}


def toy_pairs() -> list[tuple[str, str]]:
    """64 English-German pairs."""
    return [
        (f"{s} {p} {q}.", f"{SUBJECTS[s]} {PREDICATES[p]} {PLACES[q]}.")
        for s in SUBJECTS
        for p in PREDICATES
        for q in PLACES
    ]


# Tensors of tests are tiny: a second thread only waits for the first.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
    random.seed(0)


@pytest.fixture(scope="session", autouse=True)
def _private_cache(tmp_path_factory):
    """Keep the tests' data sets out of the user's cache; child processes inherit the variable."""
    import datasets

    cache = tmp_path_factory.mktemp("cache")
    os.environ["HF_HOME"] = str(cache)
    datasets.config.HF_DATASETS_CACHE = cache / "datasets"
    datasets.disable_progress_bars()


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return Tokenizer.train((text for pair in toy_pairs() for text in pair), 320)


@pytest.fixture(scope="session")
def model_folder(tokenizer, tmp_path_factory) -> Path:
    """An exported model with random weights: its translations mean nothing, but they are deterministic."""
    torch.manual_seed(5)
    config = GNMTConfig(
        vocab_size=tokenizer.vocab_size, hidden_size=16, num_encoder_layers=3, num_decoder_layers=3, init_range=0.5
    )
    folder = tmp_path_factory.mktemp("model") / "model"
    save_model(Model(GNMT(config), tokenizer, "en", "de"), folder, "a model card\n")
    return folder


@pytest.fixture
def model(model_folder) -> Model:
    return load_model(model_folder)


@pytest.fixture(scope="session")
def run():
    """Run one of the programs as a user would and return the finished process."""

    def run_program(program: str, *arguments: str | Path, text: bytes = b"", cwd: Path = ROOT, **environment: str):
        return subprocess.run(
            [sys.executable, str(ROOT / program), *map(str, arguments)],
            input=text,
            capture_output=True,
            cwd=cwd,
            env={**os.environ, **environment},
            timeout=300,
        )

    return run_program


@pytest.fixture
def translate(run, model_folder):
    """Run translate.py on `TEXT`, or on another text."""

    def translate(*arguments, text=TEXT):
        return run("translate.py", "-m", model_folder, "-b", "3", *arguments, text=text)

    return translate


@pytest.fixture
def corpus(tmp_path) -> Path:
    """A folder with the toy pairs as aligned text files: train, validation, test."""
    pairs = toy_pairs()
    for name, rows in {"train": pairs, "validation": pairs[::16], "test": pairs[1::16]}.items():
        for side, lang in enumerate(("en", "de")):
            (tmp_path / f"{name}.{lang}").write_text("".join(row[side] + "\n" for row in rows), encoding="utf-8")
    return tmp_path


@pytest.fixture
def train(run, corpus):
    """Train a tiny network on the toy pairs; settings are options without their hyphens."""

    def run_training(*arguments, **settings):
        paths = {f"data.{name}.path": corpus / f"{name}.{{lang}}" for name in ("train", "validation", "test")}
        options = {**SMALL_RUN, "trainer.default_root_dir": corpus / "run", **paths, **settings}
        flat = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        return run("train.py", *flat, *arguments)

    return run_training


def assert_refused(process: subprocess.CompletedProcess, *mentioned: str) -> None:
    """Bad input: status 2, one line on stderr, no traceback, nothing on stdout."""
    message = process.stderr.decode()
    assert process.returncode == 2, message
    errors = [line for line in message.splitlines() if "error" in line]
    assert len(errors) == 1, message
    assert "Traceback" not in message
    for text in mentioned:
        assert text in errors[0]
    assert process.stdout == b""
