"""The study's arithmetic and its records; `tests/system/test_small_study.py` runs a small one."""

import dataclasses
import math

import pytest

from gnmt.config import CorpusConfig
from gnmt.errors import ConfigError
from gnmt.files import locked
from gnmt.study.analysis import Fit, Mean
from gnmt.study.results import Results
from gnmt.study.settings import Stack, StudyConfig

CONFIG = StudyConfig(CorpusConfig("train.{lang}"), CorpusConfig("validation.{lang}"))


def test_the_grid_has_each_depth_in_each_variant():
    stacks = CONFIG.stacks()
    for cell in ("rnn", "lstm"):
        for variant in ("plain", "residual", "residual_norm"):
            depths = [s.depth for s in stacks if (s.cell, s.variant, s.width) == (cell, variant, 128)]
            assert depths == [1, 2, 4, 6, 8, 12]
        assert Stack(cell, "plain", 2, 256) in stacks


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_the_wide_stack_has_as_many_multiplications(cell):
    def products(stack):
        network = stack.network(CONFIG.vocab_size)
        return sum(size**2 for size in (*network.encoder_sizes, *network.decoder_sizes))

    assert products(CONFIG.wide_stack(cell)) == products(Stack(cell, "plain", 8, 128))


def test_variants_differ_in_shortcut_and_normalisation_alone():
    plain, residual, norm = (
        Stack("lstm", variant, 4, 128).network(2000) for variant in ("plain", "residual", "residual_norm")
    )
    assert dataclasses.replace(plain, shortcut="project") == residual
    assert dataclasses.replace(residual, layer_norm=True) == norm


def test_every_seed_trains_every_stack():
    rates = dict.fromkeys(CONFIG.stacks(), (0.004,))
    runs = CONFIG.finals(rates, CONFIG.seeds)
    assert len(runs) == len(set(runs)) == len(rates) * 3
    assert {run.updates for run in runs} == {CONFIG.updates}


def test_a_fit_recovers_a_constant_factor():
    fit = Fit.of([0, 1, 2, 3], [8.0, 4.0, 2.0, 1.0])
    assert fit.factor == pytest.approx(0.5)
    assert fit.r_squared == pytest.approx(1.0)
    assert Fit.of([0, 1, 2], [1.0, 0.0, 1.0]).r_squared < 0.1


def test_a_mean_has_the_standard_error_over_seeds():
    assert Mean.of([1.0, 2.0, 3.0]) == (2.0, pytest.approx(1 / math.sqrt(3)), 3)
    assert Mean.of([1.0]) == (1.0, 0.0, 1)


def test_lower_means_a_t_test_at_95_percent():
    assert Mean(1.0, 0.1, 3).below(Mean(1.4, 0.1, 3))  # 2.83 standard errors against t = 2.78
    assert not Mean(1.0, 0.1, 3).below(Mean(1.39, 0.1, 3))
    assert not Mean(1.4, 0.1, 3).below(Mean(1.0, 0.1, 3))
    assert not Mean(1.0, 0.0, 1).below(Mean(9.0, 0.0, 1))


@pytest.mark.parametrize("depths", [(8,), (0, 8), (1, 2)])
def test_depths_must_suffice_for_the_claims(depths):
    with pytest.raises(ConfigError, match="expected at least two"):
        dataclasses.replace(CONFIG, depths=depths)


def test_records_survive_a_line_that_was_cut_off(tmp_path):
    results = Results(tmp_path, CONFIG)
    results.add("a", {"validation_loss": 1.0})
    results.add("b", {"validation_loss": 2.0})
    path = tmp_path / "runs.jsonl"
    path.write_text(path.read_text()[:-5])
    again = Results(tmp_path, CONFIG)
    assert list(again.records) == ["a"]
    again.add("b", {"validation_loss": 2.0})
    assert Results(tmp_path, CONFIG).records.keys() == {"a", "b"}


@pytest.mark.parametrize("damage", ['{"key": "b", "valid', "\0" * 40, "[1]", "null", "{}", '"text"'])
def test_a_damaged_line_is_left_out_and_the_others_are_kept(tmp_path, damage, caplog):
    results = Results(tmp_path, CONFIG)
    results.add("a", {"validation_loss": 1.0})
    results.add("c", {"validation_loss": 2.0})
    path = tmp_path / "runs.jsonl"
    first, last = path.read_text().splitlines()
    path.write_text(f"{first}\n{damage}\n{last}\n")
    assert list(Results(tmp_path, CONFIG).records) == ["a", "c"]
    assert "line 2 is damaged" in caplog.text or damage == "null"


def test_a_folder_keeps_one_corpus(tmp_path):
    results = Results(tmp_path, CONFIG)
    results.check_corpus("one")
    Results(tmp_path, CONFIG).check_corpus("one")
    with pytest.raises(ConfigError, match="another corpus"):
        Results(tmp_path, CONFIG).check_corpus("two")


def test_a_folder_keeps_one_study(tmp_path):
    Results(tmp_path, CONFIG)
    with pytest.raises(ConfigError, match="study of other settings"):
        Results(tmp_path, CONFIG.quick())


def test_a_folder_serves_one_process_at_a_time(tmp_path):
    with locked(tmp_path), pytest.raises(ConfigError, match="in use by another process"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass
