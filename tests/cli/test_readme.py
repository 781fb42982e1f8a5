"""What the README says works: its commands run, its Python runs, its files exist."""

import os
import random
import re
import subprocess
import sys

import pytest
from conftest import ROOT, RUN_FOLDER
from parse_only import ParseOnly

from gnmt.study.__main__ import parser
from gnmt.training.cli import build

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^((?:    .*\n)+)", README, re.MULTILINE)
COMMANDS = [
    re.sub(r"\s+#.*", "", line).strip()
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip().startswith("python ")
]
QUICK = "--model.network.hidden_size 8 --trainer.max_epochs 1 --diagnostics.every_n_steps 0"


@pytest.fixture(name="place")
def _place(tmp_path, model_folder):
    """A folder that looks like a checkout with a trained model, texts, and the user's own corpus."""
    for name in ("translate.py", "train.py", "configs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "default").symlink_to(model_folder)
    (tmp_path / "source.txt").write_text("The light is on\n\nThe door\n")
    (tmp_path / "reference.txt").write_text("Das Licht ist an\n\nDie T\u00fcr\n")
    (tmp_path / "mytext").mkdir()
    for name in ("train", "validation", "test"):
        for lang in ("en", "de"):
            (tmp_path / "mytext" / f"{name}.{lang}").write_text(few_lines(100, seed=name + lang))
    return tmp_path


def few_lines(number, seed):
    """As many lines of made-up words as a newcomer tries first."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(("ka", "lo", "mi", "sun", "tor", "e", "bra", "ni"), k=3)) for _ in range(300)]
    return "".join(" ".join(rng.choices(words, k=6)) + "\n" for _ in range(number))


def shell(command, place):
    command = re.sub(r"^python ", f"{sys.executable} ", command)
    return subprocess.run(
        ["bash", "-c", command], cwd=place, capture_output=True, text=True, timeout=300, env=os.environ
    )


def test_there_are_commands():
    assert sum("translate.py" in command for command in COMMANDS) >= 3
    assert sum("train.py" in command for command in COMMANDS) >= 4


@pytest.mark.parametrize("command", [command for command in COMMANDS if "translate.py" in command])
def test_translation_commands_run(command, place):
    result = shell(command, place)
    assert result.returncode == 0, result.stderr
    written = (place / "target.txt").read_text() if "target.txt" in command else result.stdout
    assert written.count("\n") == (9 if "-n 3" in command else 3)


@pytest.mark.parametrize("command", [command for command in COMMANDS if "train.py" in command])
def test_training_commands_parse(command):
    arguments = [argument.strip("'") for argument in command.split()[2:]]
    arguments = [argument.replace("runs/mytext/config.yaml", "configs/default.yaml") for argument in arguments]
    known = [str(ROOT / argument) if argument.startswith("configs/") else argument for argument in arguments]
    assert build(known, ParseOnly).config.model.network.hidden_size == 256


def test_study_commands_parse():
    commands = [command for command in COMMANDS if "gnmt.study" in command]
    assert len(commands) == 2
    for command in commands:
        assert parser().parse_args(command.split()[3:]).train.endswith("train.{lang}")


def test_training_on_your_own_text_runs(place):
    (command,) = [command for command in COMMANDS if "mytext/train" in command]
    result = shell(f"{command} {QUICK}", place)
    assert result.returncode == 0, result.stderr
    assert (place / "runs" / "mytext" / "model" / "model.safetensors").exists()


def test_python_example_runs(place):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=place, capture_output=True, text=True, timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") == 2


def test_the_list_of_a_run_folder_is_complete():
    """Against what the tests of training find there; `report.md` is `make train`'s."""
    table = README.partition("What a run folder holds")[2].partition("A folder that holds anything else")[0]
    for name in (*RUN_FOLDER, "report.md"):
        assert f"`{name}" in table, name


def test_linked_files_and_make_targets_exist():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("https://") or (ROOT / link).exists(), link
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+) ", README):
        assert f"\n{target}:" in makefile, target
