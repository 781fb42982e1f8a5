"""`python -m gnmt.study` and bad input: one line, status 2, nothing trained."""

import os
import subprocess
import sys

import pytest
from conftest import ROOT, assert_refused


@pytest.fixture(name="study")
def _study(corpus):
    def study(*arguments, **environment):
        paths = ["--train", f"{corpus}/train.{{lang}}", "--validation", f"{corpus}/validation.{{lang}}"]
        return subprocess.run(
            [sys.executable, "-m", "gnmt.study", "--output", corpus / "study", *paths, *arguments],
            capture_output=True,
            cwd=ROOT,
            env={**os.environ, **environment},
            timeout=300,
        )

    return study


@pytest.mark.parametrize(
    ("arguments", "mentioned"),
    [
        (["--depths", "1", "4"], ["depths [1, 4]", "8 among them"]),
        (["--depths", "0", "8"], ["depths [0, 8]", "each at least 1"]),
        (["--workers", "0"], ["--workers is 0", "at least 1"]),
        (["--train", "/nonexistent/t.{lang}"], ["/nonexistent/t.en", "No such file"]),
        (["--target-lang", "fr"], ["train.fr", "No such file"]),
        (["--cells", "sru"], ["invalid choice: 'sru'"]),
        (["--quik"], ["unrecognized arguments: --quik"]),
    ],
)
def test_mistakes_get_one_line_and_train_nothing(study, corpus, arguments, mentioned):
    assert_refused(study(*arguments), *mentioned)
    assert not (corpus / "study" / "runs.jsonl").exists()
