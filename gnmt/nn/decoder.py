"""The decoder, wired `parallel`: the attention reads only the bottom layer. Shapes: see `gnmt.nn`; N = K * B rows.

In training every layer and the attention run over all time steps at once, because no layer needs the context of the
step before. Deviation from the paper, where the bottom layer also reads the last step's context.
"""

from typing import NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from gnmt.config import GNMTConfig
from gnmt.nn.attention import AdditiveAttention, Memory
from gnmt.nn.lstm import LockedDropout, LSTMState, ResidualLSTM


class DecoderState(NamedTuple):
    """All that decoding carries from one step to the next, for N rows: K hypotheses of each of B sentences, K-major.

    Attributes:
        hidden: (L, N, H).
        cell: (L, N, H).
        attention: (N, S) attention weights of the last step.
    """

    hidden: Tensor
    cell: Tensor
    attention: Tensor

    def select(self, index: Tensor) -> Self:
        """The state of some rows, by their positions (N',); a row may be taken several times."""
        return type(self)(
            self.hidden.index_select(1, index), self.cell.index_select(1, index), self.attention.index_select(0, index)
        )


class Decoder(nn.Module):
    """`num_decoder_layers` residual LSTM layers; the context joins the input of each layer above the bottom one."""

    def __init__(self, config: GNMTConfig, memory_size: int) -> None:
        super().__init__()
        self.hidden_size = config.hidden_size
        self.attention = AdditiveAttention(config.hidden_size, memory_size, config.hidden_size)
        self.context_dropout = LockedDropout(config.dropout)
        self.layers = nn.ModuleList(
            ResidualLSTM(
                config.hidden_size,
                config.hidden_size,
                context_size=memory_size if number > 1 else 0,
                residual=number >= config.first_residual_layer,
                layer_norm=config.layer_norm,
                dropout=config.dropout,
            )
            for number in range(1, config.num_decoder_layers + 1)
        )

    def forward(self, embedded: Tensor, memory: Memory) -> Tensor:
        """Map embedded target inputs (T, B, H) to the top layer's outputs (T, B, H)."""
        bottom, *upper = self.layers
        h: Tensor = bottom(embedded)
        context, _ = self.attention(h.transpose(0, 1), memory)
        context = self.context_dropout(context.transpose(0, 1))
        for layer in upper:
            h = layer(h, context)
        return h

    def step(self, embedded: Tensor, state: DecoderState | None, memory: Memory) -> tuple[Tensor, DecoderState]:
        """Decode one token of each hypothesis.

        Args:
            embedded: (K, B, H) embeddings of each hypothesis' last token.
            state: of the N = K * B rows; None at the start (zero state, paper section 3).
            memory: of the B sentences; the K hypotheses of a sentence share it.

        Returns:
            the top layer's outputs (K, B, H) and the next state.
        """
        beam, batch, _ = embedded.shape
        h = embedded.flatten(0, 1)
        if state is None:
            zeros = h.new_zeros(len(self.layers), len(h), self.hidden_size)
            state = DecoderState(zeros, zeros, h.new_zeros(0))
        bottom, *upper = cast("list[ResidualLSTM]", list(self.layers))
        h, new_state = bottom.step(h, LSTMState(state.hidden[0], state.cell[0]))
        context, weights = self.attention(h.view(beam, batch, -1).transpose(0, 1), memory)
        context = context.transpose(0, 1).flatten(0, 1)
        states = [new_state]
        for layer, hidden, cell in zip(upper, state.hidden[1:], state.cell[1:], strict=True):
            h, new_state = layer.step(h, LSTMState(hidden, cell), context)
            states.append(new_state)
        hidden, cell = map(torch.stack, zip(*states, strict=True))
        state = DecoderState(hidden, cell, weights.transpose(0, 1).flatten(0, 1))
        return h.view(beam, batch, -1), state
