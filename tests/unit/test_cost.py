"""Time and memory are measured in a process of their own."""

from gnmt.config import GNMTConfig
from gnmt.study.cost import measure


def test_a_larger_network_has_a_higher_peak():
    small, large = (
        measure(GNMTConfig(vocab_size=100, hidden_size=size, num_encoder_layers=1, num_decoder_layers=1), 4, 2)
        for size in (8, 512)
    )
    assert small["milliseconds"] > 0
    assert large["mebibytes"] - small["mebibytes"] > 4 * large["parameters"] * 4 / 2**20 * 0.8
