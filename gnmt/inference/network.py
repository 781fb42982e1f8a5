"""The trained network prepared for decoding: `encode`, `start`, `step`. Shapes: see `gnmt.nn`; N = B * K rows, B-major.

It is the only implementation of single steps: search, scoring of prefixes and validation use it, at every precision
and on every device. Training runs over whole sequences (`gnmt.nn`); the tests compare the two.
"""

from typing import NamedTuple, Self, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from gnmt.inference.encoder import Int8Encoder
from gnmt.inference.layers import LayerStep
from gnmt.inference.products import Product, build_product, check_int8
from gnmt.nn.attention import Memory
from gnmt.nn.gnmt import GNMT
from gnmt.nn.lstm import LayerState, ResidualLayer
from gnmt.search.candidates import VOCABULARY_BLOCK


class DecoderState(NamedTuple):
    """All that decoding carries from one step to the next, for N rows: K hypotheses of each of B sentences.

    Attributes:
        layers: of each layer its state, tensors (N, H).
        feedback: what the attention sends to the next step's bottom layer: nothing (N, 0) in `parallel`, the context
            (N, M) in `gnmt_v2`, the next query (N, H) in `gnmt`.
    """

    layers: tuple[LayerState, ...]
    feedback: Tensor

    def select(self, index: Tensor) -> Self:
        """The state of some rows, by their positions (N',); a row may be taken several times."""
        layers = tuple(tuple(tensor.index_select(0, index) for tensor in layer) for layer in self.layers)
        return type(self)(layers, self.feedback.index_select(0, index))

    def append(self, other: Self) -> Self:
        """This state with the rows of another one behind its own."""
        layers = tuple(
            tuple(torch.cat(pair) for pair in zip(layer, other_layer, strict=True))
            for layer, other_layer in zip(self.layers, other.layers, strict=True)
        )
        return type(self)(layers, torch.cat([self.feedback, other.feedback]))


class InferenceNetwork:
    """A network in evaluation mode, its weights copied into the form in which they are multiplied.

    Args:
        network: the trained network, on the device to be used; later changes of its weights are not seen.
        precision: of the products of recurrent layers, attention query and softmax: `fp32` (the network's own type),
            `bf16` or, on CPUs, `int8`. All else stays in float32: normalisation, attention scores, states, projected
            shortcuts, and with int8 an encoder of other cells than `lstm`.

    Raises:
        ConfigError: this device cannot multiply at this precision.
    """

    def __init__(self, network: GNMT, precision: str = "fp32") -> None:
        device = network.output.weight.device
        if precision == "int8":
            check_int8(device)
        self.network = network
        self.precision = precision
        is_int8 = precision == "int8" and network.config.cell == "lstm"
        self._encoder = Int8Encoder(network.encoder) if is_int8 else network.encoder
        decoder = network.decoder
        layers = cast("list[ResidualLayer]", list(decoder.layers))
        self._bottom, *self._upper = [LayerStep(layer, precision) for layer in layers]
        projection = decoder.attention.query_projection
        self._project_query = build_product(projection.weight, projection.bias, precision)
        self._output = self._padded_output(precision)

    def _padded_output(self, precision: str) -> Product:
        """The softmax's product; tokens that only fill the last block get log-probability minus infinity."""
        output = self.network.output
        fill = -len(output.weight) % VOCABULARY_BLOCK
        weight = F.pad(output.weight, (0, 0, 0, fill))
        return build_product(weight, F.pad(output.bias, (0, fill), value=-torch.inf), precision)

    @torch.inference_mode()
    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Encode sources once.

        Args:
            source: (S, B) int64 tokens, padded at the end of each column with any id.
            lengths: (B,) int64, each at least 1.
        """
        is_bf16 = self.precision == "bf16"
        with torch.autocast(source.device.type, torch.bfloat16, enabled=is_bf16):
            encoded = self._encoder(self.network.embed_source(source), lengths)
            memory = self.network.memory(encoded, lengths)
        return Memory(memory.values.float(), memory.keys.float(), memory.mask) if is_bf16 else memory

    @torch.inference_mode()
    def start(self, memory: Memory, beam_size: int) -> DecoderState:
        """The state before the first token of `beam_size` hypotheses of each sentence: zeros (paper section 3)."""
        decoder, rows = self.network.decoder, len(memory.mask) * beam_size
        layers = cast("list[ResidualLayer]", list(decoder.layers))
        states = tuple(layer.rnn.zero_state(memory.values, rows) for layer in layers)
        return DecoderState(states, decoder.first_feedback(memory.values, rows))

    @torch.inference_mode()
    def step(self, tokens: Tensor, state: DecoderState, memory: Memory) -> tuple[Tensor, DecoderState, Tensor]:
        """Predict the token after `tokens`.

        Args:
            tokens: (B, K) int64, the last token of each of K hypotheses of B sentences.
            state: of their N = B * K rows.
            memory: of the B sentences; the K hypotheses of a sentence share it.

        Returns:
            log-probabilities (B, K, V) in nats, in float32 (float64 if the network is), V padded with minus infinity
            to a multiple of `VOCABULARY_BLOCK`; the next state; and the attention weights (B, K, S) of the context
            that the upper layers read.
        """
        network, wiring = self.network, self.network.config.wiring
        x = network.embed_target(tokens).flatten(0, 1)
        if wiring == "gnmt":
            context, weights = self._attend(state.feedback, memory)
            h, bottom_state = self._bottom(x, state.layers[0], context)
            feedback = h
        else:
            h, bottom_state = self._bottom(x, state.layers[0], state.feedback)
            context, weights = self._attend(h, memory)
            feedback = context if wiring == "gnmt_v2" else state.feedback
        states = [bottom_state]
        for layer, layer_state in zip(self._upper, state.layers[1:], strict=True):
            h, layer_state = layer(h, layer_state, context)
            states.append(layer_state)
        logits = self._output(network.decoder.with_context(h, context))
        log_probs = logits.log_softmax(dim=-1).view(*tokens.shape, -1)
        return log_probs, DecoderState(tuple(states), feedback), weights

    def _attend(self, query: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """One query of each of N rows: contexts (N, M) and weights (B, K, S)."""
        query = self._project_query(query).view(len(memory.mask), -1, memory.keys.shape[-1])
        context, weights = self.network.decoder.attention.attend(query, memory)
        return context.flatten(0, 1), weights
