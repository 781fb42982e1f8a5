"""The encoder: a stack of residual recurrent layers, the lowest ones reading both ways. Shapes: see `gnmt.nn`."""

from torch import Tensor, nn

from gnmt.config import GNMTConfig
from gnmt.nn.lstm import ResidualLayer, reversal_index


class Encoder(nn.Module):
    """`num_bidirectional_layers` layers that read both ways (paper section 3.2: 1), then unidirectional ones.

    Deviation from the paper: normalisation after each layer, and optionally a projected shortcut around layer 2.
    """

    def __init__(self, config: GNMTConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        self.output_size = config.hidden_size
        for number, hidden_size in enumerate(config.encoder_sizes, start=1):
            bidirectional = number <= config.num_bidirectional_layers
            layer = ResidualLayer(config, self.output_size, hidden_size, number, bidirectional=bidirectional)
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
