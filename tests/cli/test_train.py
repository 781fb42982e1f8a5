"""train.py and bad input: one line, status 2, nothing overwritten."""

import os
import re

import pytest
import torch
from conftest import ROOT, RUN_FOLDER, assert_refused
from parse_only import ParseOnly

from gnmt.checkpoint import REMOVED
from gnmt.training.cli import build


@pytest.mark.parametrize(
    ("settings", "mentioned"),
    [
        ({"data.train.path": "/nonexistent/t.{lang}"}, ["/nonexistent/t.en", "No such file"]),
        ({"data.source_lang": "fr"}, ["train.fr", "No such file"]),
        ({"data.target_lang": "en"}, ["source_lang and target_lang"]),
        ({"model.network.vocab_size": 32000}, ["32000", "more than the training text supports", "at most"]),
        ({"model.network.vocab_size": 20}, ["20 pieces", "raise the vocabulary size"]),
        ({"model.network.num_layer": 3}, ["num_layer", "did you mean model.network.num_encoder_layers"]),
        ({"trainer.max_epoch": 3}, ["max_epoch", "did you mean trainer.max_epochs"]),
        ({"model.network.dropout": "a lot"}, ["dropout", "a lot"]),
        ({"model.network.dropout": 1.5}, ["dropout is 1.5"]),
        ({"ckpt_path": "last"}, ["last.ckpt", "leave out --ckpt_path"]),
        ({"ckpt_path": "/nonexistent.ckpt"}, ["/nonexistent.ckpt"]),
        ({"early_stopping.monitor": "val/blue"}, ["val/blue", "val/bleu with mode max"]),
        ({"early_stopping.monitor": "val/loss"}, ["val/loss with mode max", "val/loss with mode min"]),
        ({"early_stopping.patience": 0}, ["patience is 0", "at least 1"]),
        ({"trainer.accumulate_grad_batches": 2}, ["tokens_per_batch"]),
        ({"trainer.accelerator": "tpu"}, ["torch_xla"]),
        ({"trainer.accelerator": "foo"}, ["foo"]),
        ({"model.label_smoothing": 5}, ["label_smoothing 5"]),
        ({"data.train.path": "/tmp"}, ["/tmp is a folder"]),
        ({"data.train.split": "train"}, ["split", "hub data sets only"]),
        ({"data.target_lang": "ja"}, ["ja-mecab", "pip install"]),
    ],
)
def test_mistakes_get_one_line(train, settings, mentioned):
    assert_refused(train(**settings), *mentioned)


def test_a_mistyped_key_in_a_file_is_refused_with_its_likeliest_meaning(run, tmp_path):
    path = tmp_path / "wrong.yaml"
    path.write_text("model:\n  network:\n    num_layer: 8\n")
    assert_refused(run("train.py", "--config", path), "num_layer", "did you mean")
    path.write_text("model: [\n")
    assert_refused(run("train.py", "--config", path), "config")


@pytest.mark.parametrize(
    ("text", "mentioned"),
    [
        (b"model:\n  network:\n    cell: lstm\n    cell: gru\n", "wrong.yaml, line 4: cell stands a second time"),
        (b"cells: [{cell: lstm, cell: gru}]\n", "wrong.yaml, line 1: cell stands a second time"),
        (b"seed_everything: 1\n# gr\xfcn\n", "wrong.yaml, line 2: no UTF-8 text"),
        (b"\xff\xfes\x00", "wrong.yaml, line 1: no UTF-8 text"),
        (b"a: \x00\n", "special characters are not allowed"),
    ],
)
def test_files_that_are_no_proper_yaml_are_refused(run, tmp_path, text, mentioned):
    path = tmp_path / "wrong.yaml"
    path.write_bytes(text)
    assert_refused(run("train.py", "--config", path), mentioned)


def test_files_of_a_part_of_the_configuration_are_refused_alike(run, tmp_path):
    path = tmp_path / "network.yaml"
    path.write_bytes(b"cell: lstm\ncell: gru\n")
    assert_refused(run("train.py", f"--model.network={path}"), "line 2: cell stands a second time")
    path.write_bytes(b"cell: \xe4\n")
    assert_refused(run("train.py", f"--model.network={path}"), "network.yaml, line 1: no UTF-8 text")


@pytest.mark.parametrize(
    ("en", "de", "mentioned"), [("a\nb\n", "c\n", ["2 lines", "1"]), ("", "", ["no sentence pairs"])]
)
def test_unusable_corpora_are_refused(train, corpus, en, de, mentioned):
    (corpus / "bad.en").write_text(en)
    (corpus / "bad.de").write_text(de)
    for split in ("train", "validation"):
        assert_refused(train(**{f"data.{split}.path": corpus / "bad.{lang}"}), *mentioned)


def test_a_folder_that_holds_something_is_not_touched(train, corpus):
    folder = corpus / "run"
    folder.mkdir()
    (folder / "thesis.txt").write_text("my thesis")
    assert_refused(train(), "is not empty", "--ckpt_path last")
    assert [path.name for path in folder.iterdir()] == ["thesis.txt"]


def test_a_users_configuration_is_not_overwritten(run, corpus, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.yaml").write_text("seed_everything: 1  # mine\n")
    assert_refused(run("train.py", "-c", folder / "config.yaml", "--trainer.default_root_dir", folder), "required")
    default = (ROOT / "configs" / "default.yaml").read_text()
    (folder / "config.yaml").write_text(default)
    result = run("train.py", f"--config={folder / 'config.yaml'}", "--trainer.default_root_dir", folder)
    assert_refused(result, "is not empty")
    assert (folder / "config.yaml").read_text() == default


def test_a_bad_checkpoint_is_refused_and_changes_nothing(train, corpus):
    assert train().returncode == 0
    folder = corpus / "run"
    before = (folder / "config.yaml").read_bytes()
    last = folder / "checkpoints" / "last.ckpt"
    other = {"ckpt_path": "last", "model.network.hidden_size": 16, "model.network.cell": "gru"}
    result = train(**other)
    assert_refused(result, f"{last} holds a network of hidden_size=8, cell=lstm, the configuration says hidden_size=16")
    assert result.stderr.endswith(b"hidden_size=16, cell=gru\n")
    more = {"ckpt_path": "last", "trainer.max_epochs": 2}
    assert_refused(train(**more, **{"data.train.path": "/nonexistent/{lang}"}), "/nonexistent/en")
    (corpus / "train.fr").write_bytes((corpus / "train.de").read_bytes())
    (corpus / "validation.fr").write_bytes((corpus / "validation.de").read_bytes())
    (corpus / "test.fr").write_bytes((corpus / "test.de").read_bytes())
    assert_refused(train(**{"ckpt_path": "last", "data.target_lang": "fr"}), "translates en to de", "says en to fr")
    assert_refused(train(**{"ckpt_path": last, "trainer.default_root_dir": corpus / "other"}), "is not in run folder")
    last.write_bytes(last.read_bytes()[:1000])
    assert_refused(train(ckpt_path="last"), "no checkpoint of this program")
    assert (folder / "config.yaml").read_bytes() == before


def test_a_run_without_a_validation_keeps_its_work(train, corpus):
    assert_refused(train(**{"trainer.check_val_every_n_epoch": 5}), "before its first validation", "--ckpt_path last")
    result = train(**{"trainer.max_epochs": 2, "ckpt_path": "last"})
    assert result.returncode == 0, result.stderr.decode()


def test_a_checkpoint_with_the_setting_that_was_removed_goes_on_where_it_was_off(train, corpus):
    assert train().returncode == 0
    last = corpus / "run" / "checkpoints" / "last.ckpt"
    checkpoint = torch.load(last, weights_only=True)
    for value in (0.3, 0.0):
        checkpoint["gnmt"]["description"]["network"][REMOVED] = value
        torch.save(checkpoint, last)
        result = train(**{"trainer.max_epochs": 2, "ckpt_path": "last"})
        if value:
            assert_refused(result, f"{REMOVED} {value}", "cannot continue")
        else:
            assert result.returncode == 0, result.stderr.decode()


def test_a_configuration_file_never_overrides_an_option(corpus):
    options = ["--trainer.max_epochs=77", "-c", str(ROOT / "configs" / "default.yaml")]
    assert build(options, ParseOnly).config.trainer.max_epochs == 77


def test_divergence_ends_the_run_with_one_line(train):
    result = train(**{"model.optimizer.learning_rate": 1e30, "trainer.max_epochs": 30, "trainer.gradient_clip_val": 0})
    assert result.returncode == 1
    assert b"training diverged" in result.stderr
    assert b"Traceback" not in result.stderr


def test_a_lack_of_memory_ends_the_run_with_one_line(train, tmp_path, monkeypatch):
    (tmp_path / "greedy.py").write_text(
        "import torch\nfrom lightning.pytorch.callbacks import Callback\n\n\n"
        "class Greedy(Callback):\n    def on_before_backward(self, *_):\n        torch.empty(1 << 60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    result = train(**{"trainer.callbacks+": "greedy.Greedy"})
    assert result.returncode == 1
    last = result.stderr.decode().splitlines()[-1]
    assert last == (
        "error: there is not enough memory at step 0; lower data.batch.tokens_per_batch, now 300, and start it again"
    )
    assert b"Traceback" not in result.stderr


def test_options_that_print_go_to_standard_output(run):
    assert b"tokens_per_batch" in run("train.py", "--print_config").stdout
    assert b"--model.network.hidden_size" in run("train.py", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "vocab_size", "file"),
    [([], 8000, "default.yaml"), (["-c", "configs/multi30k_en_de.yaml"], 6000, "multi30k_en_de.yaml")],
)
def test_help_shows_what_a_run_would_use(run, arguments, vocab_size, file):
    text = " ".join(run("train.py", *arguments, "--help").stdout.decode().split())
    assert f"special ones included. (type: int, default: {vocab_size})" in text
    assert "Without --config the run is configs/default.yaml" in text.partition("options:")[0]
    assert file in text.partition("options:")[0]


def test_ctrl_c_while_libraries_load_leaves_no_traceback(run, tmp_path):
    (tmp_path / "lightning.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    result = run("train.py", PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert (result.returncode, result.stderr) == (130, b"")


def test_partial_evaluations_work(train):
    result = train(
        **{"trainer.limit_val_batches": 1, "trainer.limit_test_batches": 1, "data.batch.tokens_per_batch": 150}
    )
    assert result.returncode == 0, result.stderr.decode()


def test_a_run_leaves_everything_a_run_should(train, corpus, run):
    result = train(**{"diagnostics.every_n_steps": 2})
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout.startswith(b"BLEU ")
    assert result.stdout.count(b"\n") == 1
    folder = corpus / "run"
    names = {re.sub("(?<=tfevents).*", "", path.name) for path in folder.iterdir()}
    assert names == RUN_FOLDER
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    header = (folder / "metrics.csv").read_text().splitlines()[0].split(",")
    logged = {"train/loss", "train/tokens_per_second", "val/loss", "val/ppl", "val/bleu", "val/chrf", "lr", "grad_norm"}
    for name in ("encoder_1", "decoder_1", "encoder", "decoder", "attention", "embedding", "output"):
        logged |= {f"grad_norm/{name}", f"update_ratio/{name}"}
    assert logged | {"clipped_share"} <= set(header)
    assert (folder / "gradient_flow.png").read_bytes().startswith(b"\x89PNG")
    card = (folder / "model" / "README.md").read_text()
    assert "en -> de" in card
    assert "nrefs:1" in card
    for model in (folder, folder / "model", folder / "checkpoints" / "last.ckpt"):
        assert run("translate.py", "-m", model, text=b"The light\n").stdout.count(b"\n") == 1
    assert_refused(train(), "is not empty")
    again = run("train.py", "--config", folder / "config.yaml", "--trainer.default_root_dir", corpus / "again")
    assert again.returncode == 0, again.stderr.decode()
    assert (corpus / "again" / "test.txt").read_bytes() == (folder / "test.txt").read_bytes()


def test_a_run_tells_how_far_it_is(train):
    lines = {"trainer.callbacks+": "gnmt.training.progress.ProgressLines", "trainer.callbacks.seconds": 0}
    result = train(**lines)
    assert result.returncode == 0, result.stderr.decode()
    for told in (b"epoch 1 of 1, update 2 (2 of ", b"the best val/bleu so far\n", b"testing on 4 lines\n"):
        assert result.stderr.count(told) == 1


def test_one_pair_and_one_epoch_work(train, corpus):
    for lang, text in (("en", "The light is on\n"), ("de", "Das Licht ist an\n")):
        (corpus / f"one.{lang}").write_text(text)
    settings = {f"data.{name}.path": corpus / "one.{lang}" for name in ("train", "validation", "test")}
    result = train(**settings, **{"model.network.vocab_size": 276})
    assert result.returncode == 0, result.stderr.decode()
