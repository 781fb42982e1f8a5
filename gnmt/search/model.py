"""What search must know of a model; `gnmt.inference.network.InferenceNetwork` is one. B, K, S, V as in `gnmt.nn`."""

from typing import Any, Protocol, Self

from torch import Tensor


class Rows(Protocol):
    """A tuple of tensors whose rows can be chosen and added to."""

    def select(self, index: Tensor) -> Self:
        """Choose rows by position."""
        ...

    def append(self, other: Self) -> Self:
        """Add the rows of another tuple behind the own ones."""
        ...


class SearchMemory(Rows, Protocol):
    """What search must know of encoded sources."""

    @property
    def mask(self) -> Tensor:
        """(B, S) bool, True where valid."""
        ...

    def narrow(self, size: int) -> Self:
        """Leave out what stands behind the first `size` source positions: padding of all rows."""
        ...


class SearchModel(Protocol):
    """Encodes once, then predicts one token after the other; rows of states are B-major, N = B * K."""

    def encode(self, source: Tensor, lengths: Tensor) -> Any:
        """(S, B) tokens and (B,) lengths to a `SearchMemory` of B rows."""
        ...

    def start(self, memory: Any, beam_size: int) -> Any:
        """The state (`Rows`, N of them) before the first token."""
        ...

    def step(self, tokens: Tensor, state: Any, memory: Any) -> tuple[Tensor, Any, Tensor]:
        """(B, K) last tokens to log-probabilities (B, K, V), the next state and attention weights (B, K, S).

        V may be padded with minus infinity.
        """
        ...
