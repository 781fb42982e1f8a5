"""train.py and bad input: one line, status 2, nothing overwritten."""

import pytest
from conftest import assert_refused

SMALL = {
    "model.network.vocab_size": 320,
    "model.network.hidden_size": 8,
    "model.network.num_encoder_layers": 1,
    "model.network.num_decoder_layers": 1,
    "data.batch.tokens_per_batch": 300,
    "trainer.max_epochs": 1,
}


@pytest.fixture(name="train")
def _train(run, corpus):
    def train(*arguments, **settings):
        paths = {f"data.{name}.path": corpus / f"{name}.{{lang}}" for name in ("train", "validation", "test")}
        options = {**SMALL, "trainer.default_root_dir": corpus / "run", **paths, **settings}
        flat = [text for key, value in options.items() for text in (f"--{key}", str(value))]
        return run("train.py", *flat, *arguments)

    return train


@pytest.mark.parametrize(
    ("settings", "mentioned"),
    [
        ({"data.train.path": "/nonexistent/t.{lang}"}, ["/nonexistent/t.en", "No such file"]),
        ({"data.source_lang": "fr"}, ["train.fr", "No such file"]),
        ({"data.target_lang": "en"}, ["source_lang and target_lang"]),
        ({"model.network.vocab_size": 32000}, ["32000", "more than the training text supports", "at most"]),
        ({"model.network.vocab_size": 20}, ["20 pieces", "raise model.network.vocab_size"]),
        ({"model.network.num_layer": 3}, ["num_layer", "did you mean model.network.num_encoder_layers"]),
        ({"trainer.max_epoch": 3}, ["max_epoch", "did you mean trainer.max_epochs"]),
        ({"model.network.dropout": "a lot"}, ["dropout", "a lot"]),
        ({"model.network.dropout": 1.5}, ["dropout is 1.5"]),
        ({"ckpt_path": "last"}, ["last.ckpt", "leave out --ckpt_path"]),
        ({"ckpt_path": "/nonexistent.ckpt"}, ["/nonexistent.ckpt"]),
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


def test_a_run_leaves_everything_a_run_should(train, corpus, run):
    result = train()
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout.startswith(b"BLEU ")
    assert result.stdout.count(b"\n") == 1
    folder = corpus / "run"
    names = {path.name for path in folder.iterdir()}
    assert {"checkpoints", "config.yaml", "metrics.csv", "model", "test.txt", "tokenizer.model", "validation"} <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    header = (folder / "metrics.csv").read_text().splitlines()[0].split(",")
    logged = {"train/loss", "train/tokens_per_second", "val/loss", "val/ppl", "val/bleu", "val/chrf", "lr", "grad_norm"}
    assert logged <= set(header)
    card = (folder / "model" / "README.md").read_text()
    assert "en -> de" in card
    assert "nrefs:1" in card
    for model in (folder, folder / "model", folder / "checkpoints" / "last.ckpt"):
        assert run("translate.py", "-m", model, text=b"The light\n").stdout.count(b"\n") == 1
    assert_refused(train(), "is not empty")
    again = run("train.py", "--config", folder / "config.yaml", "--trainer.default_root_dir", corpus / "again")
    assert again.returncode == 0, again.stderr.decode()
    assert (corpus / "again" / "test.txt").read_bytes() == (folder / "test.txt").read_bytes()


def test_one_pair_and_one_epoch_work(train, corpus):
    for lang, text in (("en", "The light is on\n"), ("de", "Das Licht ist an\n")):
        (corpus / f"one.{lang}").write_text(text)
    settings = {f"data.{name}.path": corpus / "one.{lang}" for name in ("train", "validation", "test")}
    result = train(**settings, **{"model.network.vocab_size": 276})
    assert result.returncode == 0, result.stderr.decode()
