"""Speed of every form of the network: each row changes one setting of the default run's 8 + 8 layers of width 256.

`python benchmarks/variants.py` prints a Markdown table: target tokens a second, and the share of the machine's own
matrix-product rate measured just before.
"""

import dataclasses
from typing import Any

from updates import PRECISIONS, measure

from gnmt.config import GNMTConfig

BASE = GNMTConfig(vocab_size=8000, hidden_size=256, first_residual_layer=2, init_range=0.08)
VARIANTS: dict[str, dict[str, Any]] = {
    "default: lstm, parallel, additive": {},
    "cell gru": {"cell": "gru"},
    "cell rnn": {"cell": "rnn"},
    "wiring gnmt_v2": {"wiring": "gnmt_v2"},
    "wiring gnmt": {"wiring": "gnmt"},
    "attention dot, 4 heads": {"attention": "dot", "num_heads": 4},
    "no bidirectional layer": {"num_bidirectional_layers": 0},
    "all encoder layers bidirectional": {"num_bidirectional_layers": 8},
    "no shortcuts": {"shortcut": "none"},
    "no normalisation": {"layer_norm": False},
    "no dropout": {"dropout": 0.0},
    "dropout mask drawn at each step": {"hold_dropout_masks": False},
    "embeddings not shared, not tied": {"share_embeddings": False, "tie_embeddings": False},
    "widths 192 and 256 by turns": {
        "encoder_layer_sizes": (192, 256) * 4,
        "decoder_layer_sizes": (192, 256) * 4,
    },
    "4 + 4 layers": {"num_encoder_layers": 4, "num_decoder_layers": 4},
    "12 + 12 layers": {"num_encoder_layers": 12, "num_decoder_layers": 12},
}
SENTENCES, LENGTH = 96, 12


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    header = " | ".join(f"{name} tokens/s | of the limit" for name in PRECISIONS)
    print(f"| variant | {header} |\n|---|{'---|' * 2 * len(PRECISIONS)}")
    for name, changes in VARIANTS.items():
        config = dataclasses.replace(BASE, **changes)
        speeds = [measure(config, SENTENCES, LENGTH, precision) for precision in PRECISIONS]
        cells = (f"{speed.tokens_per_second:,.0f} | {speed.share:.0%}" for speed in speeds)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
