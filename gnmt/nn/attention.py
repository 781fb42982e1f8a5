"""Attention: additive in the normalised form of public GNMT code, or multi-head dot-product. Shapes: see `gnmt.nn`.

M is the width of the encoder's outputs. Both kinds have the same two methods: `memory` prepares the encoded sources
once, calling the module attends from any number of queries.
"""

from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnmt.config import GNMTConfig

# Elements of a piece of the (B, T, S, H) score tensor that are in memory at once: 4 MiB of float32 stay in the cache.
_PIECE_ELEMENTS = 1 << 20


class Memory(NamedTuple):
    """What the decoder reads of the encoded sources: computed once for each source, batch-major for `torch.bmm`.

    Attributes:
        values: (B, S, M) what contexts are made of: encoder outputs, or their projection.
        keys: (B, S, H) the encoder outputs' projection for the attention score.
        mask: (B, S) bool, True where valid; each row has at least one valid position.
    """

    values: Tensor
    keys: Tensor
    mask: Tensor

    def select(self, index: Tensor) -> Self:
        """The memory of some sentences, by their positions (N,) in the batch."""
        return type(self)(*(tensor.index_select(0, index) for tensor in self))

    def append(self, other: Self) -> Self:
        """This memory with the sentences of another one behind its own."""
        size = max(self.mask.shape[1], other.mask.shape[1])
        return type(self)(*(torch.cat(pair) for pair in zip(self._widened(size), other._widened(size), strict=True)))

    def narrow(self, size: int) -> Self:
        """This memory without what stands behind the first `size` source positions: padding of all sentences."""
        return type(self)(*(tensor[:, :size] for tensor in self))

    def _widened(self, size: int) -> Self:
        """This memory with source positions that are not valid behind its own, `size` in all."""
        more = size - self.mask.shape[1]
        if not more:
            return self
        values, keys = (F.pad(tensor, (0, 0, 0, more)) for tensor in (self.values, self.keys))
        return type(self)(values, keys, F.pad(self.mask, (0, more)))


class _AdditiveScore(torch.autograd.Function):
    """score[b, t, s] = v . tanh(q[b, t] + k[b, s]) in pieces of t; the tanh is computed again in the backward pass.

    The (B, T, S, H) tensor would be the largest one in training; here only a piece of it exists at a time.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(query, keys, v)
        return _additive_score(query, keys, v)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, keys, v = ctx.saved_tensors
        query_grads, keys_grad, v_grad = [], torch.zeros_like(keys), torch.zeros_like(v)
        pieces = _pieces(query, keys)
        for q, g in zip(pieces, grad.split([q.shape[1] for q in pieces], dim=1), strict=True):
            activation = _activation(q, keys)
            v_grad += g.flatten() @ activation.flatten(0, 2)
            inner = activation.square_().neg_().add_(1.0).mul_(g.unsqueeze(-1))
            query_grads.append(inner.sum(dim=2))
            keys_grad += inner.sum(dim=1)
        return torch.cat(query_grads, dim=1) * v, keys_grad * v, v_grad


def _additive_score(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    return torch.cat([_activation(q, keys) @ v for q in _pieces(query, keys)], dim=1)


def _pieces(query: Tensor, keys: Tensor) -> tuple[Tensor, ...]:
    return query.split(max(1, _PIECE_ELEMENTS // keys.numel()), dim=1)


def _activation(query: Tensor, keys: Tensor) -> Tensor:
    return (query.unsqueeze(2) + keys.unsqueeze(1)).tanh_()


def _score_type(x: Tensor) -> torch.dtype:
    return torch.promote_types(torch.float32, x.dtype)


class AdditiveAttention(nn.Module):
    """score(q, k) = g * v/|v| . tanh(W_q q + W_k k + b), softmax over the source, context = weighted sum of values.

    Bahdanau et al. 2015 (arXiv 1409.0473), paper section 3, with the normalised v of public GNMT code. Scores and
    softmax are in float32 whatever the precision around them.

    Args:
        query_size: width of the queries.
        memory_size: width of the encoder outputs.
        hidden_size: width of the score's hidden layer (paper: that of the LSTM layers).
    """

    def __init__(self, query_size: int, memory_size: int, hidden_size: int) -> None:
        super().__init__()
        self.context_size = memory_size
        self.query_projection = nn.Linear(query_size, hidden_size)
        self.key_projection = nn.Linear(memory_size, hidden_size, bias=False)
        self.v = nn.Parameter(torch.empty(hidden_size))
        self.g = nn.Parameter(torch.tensor(hidden_size**-0.5))

    def memory(self, values: Tensor, mask: Tensor) -> Memory:
        """Project the keys of encoder outputs (B, S, M) once for all steps, in float32; `mask` is (B, S)."""
        keys = self.key_projection(values)
        return Memory(values, keys.to(_score_type(keys)), mask)

    def forward(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Attend from every query at once.

        Args:
            query: (B, T, H).
            memory: of the same B sentences.

        Returns:
            context (B, T, M) in the values' type and attention weights (B, T, S) in float32 (float64 if the model is).
        """
        return self.attend(self.query_projection(query), memory)

    def attend(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """The same from queries (B, T, H) that are projected already."""
        with torch.autocast(query.device.type, enabled=False):
            v = (self.g * self.v / self.v.norm()).to(memory.keys.dtype)
            score = _AdditiveScore.apply if torch.is_grad_enabled() else _additive_score
            scores = score(query.to(memory.keys.dtype), memory.keys, v)
            weights = scores.masked_fill(~memory.mask.unsqueeze(1), -torch.inf).softmax(dim=-1)
        return torch.bmm(weights.to(memory.values.dtype), memory.values), weights


class DotProductAttention(nn.Module):
    """Each head: score(q, k) = (W_q q) . (W_k k) / sqrt(H / heads); context = the heads' weighted sums, concatenated.

    Vaswani et al. 2017 (arXiv 1706.03762, section 3.2) without the output projection: the layers that read the context
    have input weights of their own. Softmax in float32 whatever the precision around it.

    Args:
        query_size: width of the queries.
        memory_size: width of the encoder outputs.
        hidden_size: width of queries, keys and values over all heads.
        num_heads: divides `hidden_size`.
    """

    def __init__(self, query_size: int, memory_size: int, hidden_size: int, num_heads: int) -> None:
        super().__init__()
        self.context_size = hidden_size
        self.num_heads = num_heads
        self.query_projection = nn.Linear(query_size, hidden_size)
        self.key_projection = nn.Linear(memory_size, hidden_size, bias=False)
        self.value_projection = nn.Linear(memory_size, hidden_size)

    def memory(self, values: Tensor, mask: Tensor) -> Memory:
        """Project keys and values of encoder outputs (B, S, M) once for all decoding steps; `mask` is (B, S)."""
        return Memory(self.value_projection(values), self.key_projection(values), mask)

    def forward(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Attend from every query at once.

        Args:
            query: (B, T, H).
            memory: of the same B sentences.

        Returns:
            context (B, T, H) in the values' type and attention weights (B, T, S), the mean over heads, in float32
            (float64 if the model is).
        """
        return self.attend(self.query_projection(query), memory)

    def attend(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """The same from queries (B, T, H) that are projected already."""
        q, k, v = (self._split(x) for x in (query, memory.keys, memory.values))
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        scores = scores.to(_score_type(scores))
        weights = scores.masked_fill(~memory.mask[:, None, None], -torch.inf).softmax(dim=-1)
        context = (weights.to(v.dtype) @ v).transpose(1, 2).flatten(2)
        return context, weights.mean(dim=1)

    def _split(self, x: Tensor) -> Tensor:
        """(B, T, H) to (B, heads, T, H / heads)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def build_attention(config: GNMTConfig, query_size: int, memory_size: int) -> AdditiveAttention | DotProductAttention:
    """The attention that the configuration names, for queries and encoder outputs of these widths."""
    if config.attention == "additive":
        return AdditiveAttention(query_size, memory_size, config.hidden_size)
    return DotProductAttention(query_size, memory_size, config.hidden_size, config.num_heads)
