"""Several networks that decode together. Shapes: see `gnmt.inference.network`."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from gnmt.inference.network import InferenceNetwork


class Group(NamedTuple):
    """Memories or states of all members, row by row."""

    members: tuple[Any, ...]

    @property
    def mask(self) -> Tensor:
        """(B, S) bool, True where valid: the same for all members."""
        mask: Tensor = self.members[0].mask
        return mask

    def select(self, index: Tensor) -> Self:
        """Some rows, by position."""
        return type(self)(tuple(member.select(index) for member in self.members))

    def append(self, other: Self) -> Self:
        """These rows and others behind them."""
        return type(self)(tuple(a.append(b) for a, b in zip(self.members, other.members, strict=True)))

    def narrow(self, size: int) -> Self:
        """The members' memories without padding behind the first `size` source positions."""
        return type(self)(tuple(member.narrow(size) for member in self.members))


class Ensemble:
    """Networks with one vocabulary, whose log-probabilities are averaged at each step (paper section 8.7).

    The mean of log-probabilities is not normalised: a translation's log-probability is the mean of the members'.

    Args:
        networks: the members.
    """

    def __init__(self, networks: Sequence[InferenceNetwork]) -> None:
        self._networks = networks

    def encode(self, source: Tensor, lengths: Tensor) -> Group:
        """The members' memories of (S, B) tokens with (B,) lengths."""
        return Group(tuple(network.encode(source, lengths) for network in self._networks))

    def start(self, memory: Group, beam_size: int) -> Group:
        """The members' states before the first token."""
        pairs = zip(self._networks, memory.members, strict=True)
        return Group(tuple(network.start(member, beam_size) for network, member in pairs))

    @torch.inference_mode()
    def step(self, tokens: Tensor, state: Group, memory: Group) -> tuple[Tensor, Group, Tensor]:
        """Mean log-probabilities (B, K, V) of the token after `tokens` (B, K), states, mean attention (B, K, S)."""
        found = [
            network.step(tokens, *pair)
            for network, *pair in zip(self._networks, state.members, memory.members, strict=True)
        ]
        log_probs, states, attention = zip(*found, strict=True)
        return torch.stack(log_probs).mean(dim=0), Group(states), torch.stack(attention).mean(dim=0)
