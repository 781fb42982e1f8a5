"""The precision of training: chosen by measurement, quickly, and without touching the run's random numbers."""

import pytest
import torch

from gnmt.training import precision
from gnmt.training.precision import Timing, choose_precision, measure


@pytest.mark.parametrize(
    ("fp32", "bf16", "chosen"), [(1.0, 1.4, "32-true"), (1.1, 1.0, "32-true"), (1.2, 1.0, "bf16-mixed")]
)
def test_bfloat16_must_be_clearly_faster(monkeypatch, fp32, bf16, chosen):
    monkeypatch.setattr(precision, "measure", lambda *_: Timing(fp32, bf16))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found, reason = choose_precision("auto", True, 256, 1000)
    assert found == chosen
    assert f"{bf16 / fp32:.2f} times" in reason


def test_several_cpu_processes_agree_without_measuring(monkeypatch):
    monkeypatch.setattr(precision, "measure", None)
    assert choose_precision("cpu", False, 256, 1000)[0] == "32-true"
    assert choose_precision("mps", True, 256, 1000)[0] == "32-true"


@pytest.mark.parametrize(("supported", "chosen"), [(True, "bf16-mixed"), (False, "32-true")])
def test_gpus_are_not_measured(monkeypatch, supported, chosen):
    monkeypatch.setattr(precision, "measure", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert choose_precision("auto", True, 256, 1000)[0] == chosen


@pytest.mark.parametrize(("width", "tokens"), [(8, 20), (256, 1000), (1024, 25000), (4096, 25000), (16384, 100)])
def test_what_is_timed_is_small_enough(width, tokens):
    steps, rows, timed = precision._shape(width, tokens)
    assert 2 <= steps <= 12
    assert 1 <= rows <= 96
    assert timed == width or 1024 <= timed < width
    assert 60 * timed**2 * steps * rows <= 4.1e9


def test_measuring_leaves_random_numbers_and_threads_alone():
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    timing = measure(16, 200)
    assert min(timing) > 0
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
