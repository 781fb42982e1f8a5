"""The decoder in its three wirings, over whole target sequences. Shapes: see `gnmt.nn`; M width of the context.

| wiring | the bottom layer reads at t | the query at t | the upper layers read at t |
|---|---|---|---|
| `parallel` | embedding | its output at t | the context of the query at t |
| `gnmt_v2` | embedding, context of t - 1 (zeros at the start) | its output at t | the context of the query at t |
| `gnmt` (paper) | embedding, context of t | its output at t - 1 (zeros at the start) | the same context |

In `parallel` every layer and the attention run over all time steps at once, because nothing waits for the context of
the step before; in the other two the bottom layer and the attention go step by step, and the upper layers do not.
Decoding one token after the other is `gnmt.inference`'s.
"""

from typing import cast

import torch
from torch import Tensor, nn

from gnmt.config import GNMTConfig
from gnmt.nn.attention import Memory, build_attention
from gnmt.nn.lstm import ResidualLayer, SequenceDropout, join


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
        return self.with_context(h, context)

    @property
    def _bottom(self) -> ResidualLayer:
        return cast("ResidualLayer", self.layers[0])

    @property
    def _upper(self) -> list[ResidualLayer]:
        return cast("list[ResidualLayer]", list(self.layers)[1:])

    def with_context(self, h: Tensor, context: Tensor) -> Tensor:
        """What the softmax reads: top outputs (..., H), in a decoder of one layer with the context (..., M)."""
        return h if self.context_output is None else h + self.context_output(context)

    def _unroll_bottom(self, embedded: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """The bottom layer and the attention step by step: outputs (T, B, H) and contexts (T, B, M)."""
        bottom, (steps, batch, _) = self._bottom, embedded.shape
        state = bottom.rnn.zero_state(embedded, batch)
        masks = self.context_dropout(embedded.new_ones(steps, batch, self.context_size))
        feedback = self.first_feedback(embedded, batch)
        outputs, contexts = [], []
        for x, dropped, mask in zip(embedded, bottom.dropout(embedded), masks, strict=True):
            context = feedback if self.wiring == "gnmt_v2" else self._attend(feedback, memory) * mask
            y, state = bottom.rnn.step(join(dropped, context), state)
            h = bottom.combine(y, x)
            if self.wiring == "gnmt_v2":
                context = self._attend(h, memory) * mask
            feedback = context if self.wiring == "gnmt_v2" else h
            outputs.append(h)
            contexts.append(context)
        return torch.stack(outputs), torch.stack(contexts)

    def first_feedback(self, like: Tensor, rows: int) -> Tensor:
        """What the bottom layer or the attention gets from before the first step: zeros; (rows, 0) in `parallel`."""
        sizes = {"parallel": 0, "gnmt_v2": self.context_size, "gnmt": self._bottom.output_size}
        return like.new_zeros(rows, sizes[self.wiring])

    def _attend(self, query: Tensor, memory: Memory) -> Tensor:
        """One query (B, H) of each sentence: contexts (B, M)."""
        context: Tensor = self.attention(query.unsqueeze(1), memory)[0]
        return context.squeeze(1)
