"""Memory of training with additive attention, against dot-product attention: 8 + 8 layers of 512, 128 x 50 tokens.

`python benchmarks/memory.py [--length 50]` prints the peak of each, in a process of its own, and their ratio.
"""

import argparse

from gnmt.config import GNMTConfig
from gnmt.study.cost import measure


def main() -> None:
    """Print one line for each precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--length", type=int, default=50, help="tokens of a source and of a target")
    parser.add_argument("--wiring", default="parallel")
    options = parser.parse_args()
    for name, bfloat16 in (("fp32", False), ("bf16", True)):
        peaks = {}
        for attention in ("additive", "dot"):
            config = GNMTConfig(
                vocab_size=8000, hidden_size=options.hidden_size, attention=attention, wiring=options.wiring
            )
            found = measure(config, options.length, options.sentences, bfloat16)
            peaks[attention] = found["mebibytes"]
        print(
            f"{name}: additive {peaks['additive']:,.0f} MiB, dot {peaks['dot']:,.0f} MiB, "
            f"ratio {peaks['additive'] / peaks['dot']:.2f}"
        )


if __name__ == "__main__":
    main()
