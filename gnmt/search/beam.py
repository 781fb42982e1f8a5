"""Search over one batch from start to end."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gnmt.config import SearchConfig
from gnmt.search.batch import Search
from gnmt.search.constraints import Constraints
from gnmt.search.hypotheses import Hypothesis, Request
from gnmt.search.model import SearchModel


@torch.inference_mode()
def beam_search(
    model: SearchModel,
    source: Tensor,
    lengths: Tensor,
    config: SearchConfig,
    *,
    bos_id: int,
    eos_id: int,
    constraints: Sequence[Constraints] | None = None,
    keep_attention: bool = False,
) -> list[list[Hypothesis]]:
    """Search the best translations of a batch, see `Search`.

    Args:
        model: such as `gnmt.inference.network.InferenceNetwork`.
        source: (S, B) int64 tokens, padded at the end.
        lengths: (B,) int64, each at least 1.
        config: beam size, penalties, limits.
        bos_id: the token before the first one.
        eos_id: the token that ends a hypothesis.
        constraints: of each sentence.
        keep_attention: whether hypotheses carry their attention.

    Returns:
        for each sentence at most `config.num_hypotheses` hypotheses, best first, at least one.

    Raises:
        FloatingPointError: the model's log-probabilities are not numbers.
    """
    search = Search(model, config, bos_id=bos_id, eos_id=eos_id, keep_attention=keep_attention)
    demands = constraints or [Constraints()] * len(lengths)
    requests = [Request(key, each) for key, each in enumerate(demands)]
    search.admit(model.encode(source, lengths), requests)
    found: dict[int, list[Hypothesis]] = {}
    while search.num_active:
        found.update(search.advance())
        search.drop_done()
    return [found[key][: config.num_hypotheses] for key in range(len(requests))]
