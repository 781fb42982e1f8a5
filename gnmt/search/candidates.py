"""Which tokens come next: the best of all hypotheses together, or one drawn for each. Shapes: B, K, V; C candidates."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

# Tokens that are looked at together: the best C stand in the C blocks with the best maxima. A model whose vocabulary is
# padded to whole blocks is searched faster.
VOCABULARY_BLOCK = 64


class Candidates(NamedTuple):
    """C ways to go on for each of B sentences, best first.

    Attributes:
        log_probs: (B, C) float64, of the whole hypothesis with the new token; minus infinity where there is none.
        parents: (B, C) the hypothesis that is continued, 0 to K - 1.
        tokens: (B, C) the new token.
    """

    log_probs: np.ndarray
    parents: np.ndarray
    tokens: np.ndarray


def best_candidates(step_log_probs: Tensor, log_probs: np.ndarray, count: int) -> Candidates:
    """The `count` most probable continuations of each sentence's hypotheses together.

    Args:
        step_log_probs: (B, K, V) of the next token.
        log_probs: (B, K) of the hypotheses so far.
        count: C.
    """
    batch, beam, vocab = step_log_probs.shape
    sums = torch.from_numpy(log_probs).to(step_log_probs)
    count = min(count, beam * vocab)
    if vocab % VOCABULARY_BLOCK == 0 and count < vocab // VOCABULARY_BLOCK:
        values, index = _best_of_blocks(step_log_probs.view(batch, -1, VOCABULARY_BLOCK), sums, count)
    else:
        values, index = (step_log_probs + sums.unsqueeze(-1)).flatten(1).topk(count, dim=1)
    found, positions = values.double().cpu().numpy(), index.cpu().numpy()
    # Where nothing was possible the position means nothing, and may lie in the padding of the vocabulary.
    tokens = np.where(np.isfinite(found), positions % vocab, 0)
    return Candidates(found, positions // vocab, tokens)


def _best_of_blocks(blocks: Tensor, sums: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """As topk over all of a sentence's blocks (B, K * blocks, 64), reading them only once: values and positions."""
    batch, number, size = blocks.shape
    of_block = sums.repeat_interleave(number // sums.shape[1], dim=1)
    chosen = (blocks.amax(dim=-1) + of_block).topk(count, dim=1, sorted=False).indices
    inside = blocks.gather(1, chosen.unsqueeze(-1).expand(-1, -1, size)) + of_block.gather(1, chosen).unsqueeze(-1)
    values, position = inside.view(batch, -1).topk(count, dim=1)
    return values, chosen.gather(1, position // size) * size + position % size


def sampled_candidates(
    step_log_probs: Tensor, log_probs: np.ndarray, uniform: np.ndarray, temperature: float, top_k: int, top_p: float
) -> Candidates:
    """One token drawn for each hypothesis (K candidates, hypothesis k being the parent of candidate k).

    Args:
        step_log_probs: (B, K, V) of the next token.
        log_probs: (B, K) of the hypotheses so far.
        uniform: (B, K) random numbers in [0, 1).
        temperature: divides the log-probabilities before drawing; below 1 the probable tokens gain.
        top_k: draw among the most probable tokens only; 0 for all.
        top_p: draw among the fewest most probable tokens whose probabilities reach this sum (Holtzman et al. 2020,
            arXiv 1904.09751, section 3.1).
    """
    vocab = step_log_probs.shape[-1]
    kept = min(top_k or vocab, vocab)
    ordered, order = step_log_probs.double().div(temperature).softmax(dim=-1).topk(kept, dim=-1)
    before = ordered.cumsum(dim=-1) - ordered
    ordered = ordered.masked_fill(before >= top_p, 0.0)
    sums = ordered.cumsum(dim=-1)
    drawn = torch.from_numpy(uniform).to(sums).unsqueeze(-1) * sums[..., -1:]
    place = torch.searchsorted(sums, drawn, right=True).clamp(max=kept - 1)
    tokens = order.gather(-1, place)
    step = step_log_probs.gather(-1, tokens).squeeze(-1).double().cpu().numpy()
    parents = np.broadcast_to(np.arange(log_probs.shape[1]), log_probs.shape).copy()
    return Candidates(log_probs + step, parents, tokens.squeeze(-1).cpu().numpy())
