"""The whole network: shared embedding, encoder, attention, decoder, softmax. Shapes: see `gnmt.nn`."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnmt.config import GNMTConfig
from gnmt.nn.attention import Memory
from gnmt.nn.decoder import Decoder, DecoderState
from gnmt.nn.encoder import Encoder
from gnmt.nn.lstm import LockedDropout


class GNMT(nn.Module):
    """Wu et al. 2016, figure 1, with one vocabulary for both sides.

    Search needs `encode` and `step`; training calls the module itself.
    """

    def __init__(self, config: GNMTConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.embedding = nn.Embedding(config.vocab_size, width)
        # Tied rows have length about 1, fit for the softmax; the LSTM layers want inputs of about unit variance.
        self.embedding_scale = 0.5 * width**0.5 if config.tie_embeddings else 1.0
        self.encoder = Encoder(config)
        self.decoder = Decoder(config, self.encoder.output_size)
        self.output_dropout = LockedDropout(config.dropout)
        self.output = nn.Linear(width, config.vocab_size)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights: uniform in +-init_range; forget gates start open; tied embeddings normal with var 1/H."""
        for name, parameter in self.named_parameters():
            if "norm." in name or name.endswith("attention.g"):
                continue
            if parameter.dim() > 1 or name.endswith("attention.v"):
                nn.init.uniform_(parameter, -self.config.init_range, self.config.init_range)
            else:
                nn.init.zeros_(parameter)
                if "bias_ih" in name:
                    nn.init.ones_(parameter.chunk(4)[1])
        if self.config.tie_embeddings:
            nn.init.normal_(self.embedding.weight, std=self.config.hidden_size**-0.5)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Encode sources once.

        Args:
            source: (S, B) int64 tokens, padded at the end of each column with any id.
            lengths: (B,) int64, each at least 1.
        """
        values = self.encoder(self._embed(source), lengths).transpose(0, 1).contiguous()
        mask = torch.arange(source.shape[0], device=source.device) < lengths[:, None]
        return self.decoder.attention.memory(values, mask)

    def forward(self, source: Tensor, lengths: Tensor, target_input: Tensor, target_mask: Tensor) -> Tensor:
        """Teacher forcing: logits (N, V) of the N valid target positions, in the order of `target_mask`.

        Args:
            source: (S, B) int64.
            lengths: (B,) int64.
            target_input: (T, B) int64, the target shifted right behind the begin token.
            target_mask: (T, B) bool, True where a token is to be predicted.
        """
        memory = self.encode(source, lengths)
        h = self.output_dropout(self.decoder(self._embed(target_input), memory))
        return self.output(h[target_mask])

    def step(self, tokens: Tensor, state: DecoderState | None, memory: Memory) -> tuple[Tensor, DecoderState]:
        """Predict the token after `tokens`.

        Args:
            tokens: (K, B) int64, the last token of each of K hypotheses of B sentences.
            state: what the last call returned, with rows selected for these hypotheses; None at the start.
            memory: of the B sentences.

        Returns:
            log-probabilities (K, B, V) in float32 (nats) and the next state.
        """
        h, state = self.decoder.step(self._embed(tokens), state, memory)
        logits = self.output(h)
        return logits.to(torch.promote_types(torch.float32, logits.dtype)).log_softmax(dim=-1), state

    def _embed(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.embedding.weight) * self.embedding_scale
