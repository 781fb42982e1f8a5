"""Which process of a run has the say over its folder, and what a resumed run takes from it."""

import pytest
from lightning.pytorch.utilities import rank_zero_only

from gnmt.training.folder import is_first_process, kept_precision


@pytest.mark.parametrize(
    ("rank", "node", "is_first"), [(0, None, True), (1, None, False), (0, "0", True), (0, "1", False)]
)
def test_the_first_process_is_known_by_rank_and_machine(monkeypatch, rank, node, is_first):
    monkeypatch.setattr(rank_zero_only, "rank", rank)
    monkeypatch.delenv("NODE_RANK", raising=False)
    if node is not None:
        monkeypatch.setenv("NODE_RANK", node)
    assert is_first_process() == is_first


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ("trainer:\n  precision: bf16-mixed\n", "bf16-mixed"),
        ("trainer:\n  precision: 32\n", "32"),
        ("trainer:\n  precision: null\n", None),
        ("trainer: {}\n", None),
        ("[]\n", None),
        (None, None),
    ],
)
def test_only_a_precision_that_is_named_is_kept(tmp_path, config, kept):
    if config is not None:
        (tmp_path / "config.yaml").write_text(config)
    assert kept_precision(tmp_path) == kept
