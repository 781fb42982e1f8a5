"""The whole network: embeddings, encoder, attention, decoder, softmax. Shapes: see `gnmt.nn`."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gnmt.config import GNMTConfig
from gnmt.nn.attention import AdditiveAttention, Memory
from gnmt.nn.decoder import Decoder
from gnmt.nn.encoder import Encoder
from gnmt.nn.lstm import SequenceDropout
from gnmt.nn.norm import LayerNorm


class GNMT(nn.Module):
    """Wu et al. 2016, figure 1, with one vocabulary for both sides.

    Training calls the module itself; `gnmt.inference` decodes step by step with its weights.
    """

    def __init__(self, config: GNMTConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size
        self.source_embedding = nn.Embedding(config.vocab_size, width)
        self.target_embedding = (
            self.source_embedding if config.share_embeddings else nn.Embedding(config.vocab_size, width)
        )
        # Tied rows have length about 1, fit for the softmax; the layers want inputs of about unit variance.
        self.embedding_scale = 0.5 * width**0.5 if config.tie_embeddings else 1.0
        self.encoder = Encoder(config)
        self.decoder = Decoder(config, self.encoder.output_size)
        self.output_dropout = SequenceDropout(config.dropout, config.hold_dropout_masks)
        self.output = nn.Linear(self.decoder.output_size, config.vocab_size)
        if config.tie_embeddings:
            self.output.weight = self.target_embedding.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters anew, as the configuration says.

        Uniform in +-init_range (paper section 5.2), with `forget_bias` added to the forget gates' input biases. Not
        the paper's: embeddings that are tied to the softmax are normal with variance 1/H; gains of normalisation start
        at 1 and its biases at 0; the attention's g starts at 1/sqrt(H).
        """
        config = self.config
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -config.init_range, config.init_range)
        for module in self.modules():
            if isinstance(module, LayerNorm):
                nn.init.ones_(module.gain)
                nn.init.zeros_(module.bias)
            elif isinstance(module, AdditiveAttention):
                nn.init.constant_(module.g, config.hidden_size**-0.5)
            elif isinstance(module, nn.LSTM):
                with torch.no_grad():
                    module.all_weights[0][2].chunk(4)[1].add_(config.forget_bias)
        if config.tie_embeddings:
            for embedding in (self.source_embedding, self.target_embedding):
                nn.init.normal_(embedding.weight, std=config.hidden_size**-0.5)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        """Encode sources once.

        Args:
            source: (S, B) int64 tokens, padded at the end of each column with any id.
            lengths: (B,) int64, each at least 1.
        """
        return self.memory(self.encoder(self.embed_source(source), lengths), lengths)

    def memory(self, encoded: Tensor, lengths: Tensor) -> Memory:
        """What the decoder attends to, from the encoder's outputs (S, B, M)."""
        mask = torch.arange(encoded.shape[0], device=encoded.device) < lengths[:, None]
        return self.decoder.attention.memory(encoded.transpose(0, 1).contiguous(), mask)

    def forward(self, source: Tensor, lengths: Tensor, target_input: Tensor, target_mask: Tensor) -> Tensor:
        """Teacher forcing: logits (N, V) of the N valid target positions, in the order of `target_mask`.

        Args:
            source: (S, B) int64.
            lengths: (B,) int64.
            target_input: (T, B) int64, the target shifted right behind the begin token.
            target_mask: (T, B) bool, True where a token is to be predicted.
        """
        memory = self.encode(source, lengths)
        h = self.output_dropout(self.decoder(self.embed_target(target_input), memory))
        return self.output(h[target_mask])

    def embed_source(self, tokens: Tensor) -> Tensor:
        """Embed source tokens of any shape (...): (..., E)."""
        return self._embed(tokens, self.source_embedding)

    def embed_target(self, tokens: Tensor) -> Tensor:
        """Embed target tokens of any shape (...): (..., E)."""
        return self._embed(tokens, self.target_embedding)

    def _embed(self, tokens: Tensor, embedding: nn.Embedding) -> Tensor:
        return F.embedding(tokens, embedding.weight) * self.embedding_scale
