"""Which process of a run has the say over its folder."""

import pytest
from lightning.pytorch.utilities import rank_zero_only

from gnmt.training.folder import is_first_process


@pytest.mark.parametrize(
    ("rank", "node", "is_first"), [(0, None, True), (1, None, False), (0, "0", True), (0, "1", False)]
)
def test_the_first_process_is_known_by_rank_and_machine(monkeypatch, rank, node, is_first):
    monkeypatch.setattr(rank_zero_only, "rank", rank)
    monkeypatch.delenv("NODE_RANK", raising=False)
    if node is not None:
        monkeypatch.setenv("NODE_RANK", node)
    assert is_first_process() == is_first
