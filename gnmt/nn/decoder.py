"""The decoder in its three wirings. Shapes: see `gnmt.nn`; N = K * B rows, M width of the context.

| wiring | the bottom layer reads at t | the query at t | the upper layers read at t |
|---|---|---|---|
| `parallel` | embedding | its output at t | the context of the query at t |
| `gnmt_v2` | embedding, context of t - 1 (zeros at the start) | its output at t | the context of the query at t |
| `gnmt` (paper) | embedding, context of t | its output at t - 1 (zeros at the start) | the same context |

In `parallel` every layer and the attention run over all time steps at once, because nothing waits for the context of
the step before; in the other two the bottom layer and the attention go step by step, and the upper layers do not.
"""

from typing import NamedTuple, Self, cast

import torch
from torch import Tensor, nn

from gnmt.config import GNMTConfig
from gnmt.nn.attention import Memory, build_attention
from gnmt.nn.lstm import LayerState, ResidualLayer, SequenceDropout, join


class DecoderState(NamedTuple):
    """All that decoding carries from one step to the next, for N rows: K hypotheses of each of B sentences, K-major.

    Attributes:
        layers: of each layer its state, tensors (N, H).
        feedback: what the attention sends to the next step's bottom layer: nothing (N, 0) in `parallel`, the context
            (N, M) in `gnmt_v2`, the next query (N, H) in `gnmt`.
        attention: (N, S) weights of the context that the upper layers read at the last step.
    """

    layers: tuple[LayerState, ...]
    feedback: Tensor
    attention: Tensor

    def select(self, index: Tensor) -> Self:
        """The state of some rows, by their positions (N',); a row may be taken several times."""
        layers = tuple(tuple(tensor.index_select(0, index) for tensor in layer) for layer in self.layers)
        return type(self)(layers, self.feedback.index_select(0, index), self.attention.index_select(0, index))


class Decoder(nn.Module):
    """`num_decoder_layers` residual layers; the context joins the input of each layer above the bottom one.

    A decoder of one layer has no such layer; there the context is added to its output through a learned projection.
    """

    def __init__(self, config: GNMTConfig, memory_size: int) -> None:
        super().__init__()
        self.wiring = config.wiring
        sizes = config.decoder_sizes
        self.attention = build_attention(config, query_size=sizes[0], memory_size=memory_size)
        self.context_size = self.attention.context_size
        self.context_dropout = SequenceDropout(config.dropout, config.hold_dropout_masks)
        self.layers = nn.ModuleList()
        self.output_size = config.hidden_size
        for number, hidden_size in enumerate(sizes, start=1):
            reads_context = number > 1 or self.wiring != "parallel"
            context_size = self.context_size if reads_context else 0
            self.layers.append(ResidualLayer(config, self.output_size, hidden_size, number, context_size=context_size))
            self.output_size = hidden_size
        self.context_output = nn.Linear(self.context_size, sizes[0], bias=False) if len(sizes) == 1 else None

    def forward(self, embedded: Tensor, memory: Memory) -> Tensor:
        """Map embedded target inputs (T, B, E) to the top layer's outputs (T, B, H)."""
        if self.wiring == "parallel":
            h: Tensor = self._bottom(embedded)
            context, _ = self.attention(h.transpose(0, 1), memory)
            context = self.context_dropout(context.transpose(0, 1))
        else:
            h, context = self._unroll_bottom(embedded, memory)
        for layer in self._upper:
            h = layer(h, context)
        return self._with_context(h, context)

    @property
    def _bottom(self) -> ResidualLayer:
        return cast("ResidualLayer", self.layers[0])

    @property
    def _upper(self) -> list[ResidualLayer]:
        return cast("list[ResidualLayer]", list(self.layers)[1:])

    def _with_context(self, h: Tensor, context: Tensor) -> Tensor:
        return h if self.context_output is None else h + self.context_output(context)

    def _unroll_bottom(self, embedded: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """The bottom layer and the attention step by step: outputs (T, B, H) and contexts (T, B, M)."""
        bottom, (steps, batch, _) = self._bottom, embedded.shape
        state, weights = bottom.rnn.zero_state(embedded, batch), bottom.rnn.training_weights()
        masks = self.context_dropout(embedded.new_ones(steps, batch, self.context_size))
        feedback = self._first_feedback(embedded, batch)
        outputs, contexts = [], []
        for x, dropped, mask in zip(embedded, bottom.dropout(embedded), masks, strict=True):
            context = feedback if self.wiring == "gnmt_v2" else self._attend(feedback, memory)[0] * mask
            y, state = bottom.rnn.step(join(dropped, context), state, weights)
            h = bottom.combine(y, x)
            if self.wiring == "gnmt_v2":
                context = self._attend(h, memory)[0] * mask
            feedback = context if self.wiring == "gnmt_v2" else h
            outputs.append(h)
            contexts.append(context)
        return torch.stack(outputs), torch.stack(contexts)

    def _first_feedback(self, like: Tensor, rows: int) -> Tensor:
        sizes = {"parallel": 0, "gnmt_v2": self.context_size, "gnmt": self._bottom.output_size}
        return like.new_zeros(rows, sizes[self.wiring])

    def _attend(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """One query of each of N rows: contexts (N, M) and weights (N, S)."""
        batch = len(memory.mask)
        context, weights = self.attention(query.view(-1, batch, query.shape[-1]).transpose(0, 1), memory)
        return context.transpose(0, 1).flatten(0, 1), weights.transpose(0, 1).flatten(0, 1)

    def start(self, like: Tensor, rows: int, memory: Memory) -> DecoderState:
        """The state before the first token: zeros (paper section 3), on the device and of the type of `like`."""
        layers = cast("list[ResidualLayer]", list(self.layers))
        states = tuple(layer.rnn.zero_state(like, rows) for layer in layers)
        return DecoderState(states, self._first_feedback(like, rows), like.new_zeros(rows, memory.mask.shape[1]))

    def step(self, embedded: Tensor, state: DecoderState | None, memory: Memory) -> tuple[Tensor, DecoderState]:
        """Decode one token of each hypothesis.

        Args:
            embedded: (K, B, E) embeddings of each hypothesis' last token.
            state: of the N = K * B rows; None at the start.
            memory: of the B sentences; the K hypotheses of a sentence share it.

        Returns:
            the top layer's outputs (K, B, H) and the next state.
        """
        x = embedded.flatten(0, 1)
        if state is None:
            state = self.start(x, len(x), memory)
        old = state.layers
        if self.wiring == "gnmt":
            context, weights = self._attend(state.feedback, memory)
            h, bottom_state = self._bottom.step(x, old[0], context)
            feedback = h
        else:
            h, bottom_state = self._bottom.step(x, old[0], state.feedback if self.wiring == "gnmt_v2" else None)
            context, weights = self._attend(h, memory)
            feedback = context if self.wiring == "gnmt_v2" else state.feedback
        states = [bottom_state]
        for layer, layer_state in zip(self._upper, old[1:], strict=True):
            h, layer_state = layer.step(h, layer_state, context)
            states.append(layer_state)
        h = self._with_context(h, context)
        return h.view(*embedded.shape[:2], -1), DecoderState(tuple(states), feedback, weights)
