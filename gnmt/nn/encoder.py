"""The encoder: a stack of residual LSTM layers, the lowest ones reading in both directions. Shapes: see `gnmt.nn`."""

from torch import Tensor, nn

from gnmt.config import GNMTConfig
from gnmt.nn.lstm import ResidualLSTM, reversal_index


class Encoder(nn.Module):
    """Layer 1 (paper section 3.2: bidirectional), then unidirectional layers with shortcuts.

    Deviation from the paper: normalisation after each layer, and optionally a projected shortcut around layer 2.
    """

    def __init__(self, config: GNMTConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.output_size = config.hidden_size
        for number in range(1, config.num_encoder_layers + 1):
            layer = ResidualLSTM(
                self.output_size,
                config.hidden_size,
                bidirectional=number <= config.num_bidirectional_layers,
                residual=number >= config.first_residual_layer,
                layer_norm=config.layer_norm,
                dropout=config.dropout,
            )
            self.layers.append(layer)
            self.output_size = layer.output_size

    def forward(self, embedded: Tensor, lengths: Tensor) -> Tensor:
        """Encode embedded sources (S, B, H) of `lengths` (B,) into (S, B, output_size).

        Positions beyond a row's length hold values of no meaning; the attention masks them.
        """
        reversal = reversal_index(lengths, embedded.shape[0])
        h = embedded
        for layer in self.layers:
            h = layer(h, reversal=reversal)
        return h
