"""Speed of a training update, as target tokens a second and as a share of the machine's own matrix-product rate.

`python benchmarks/train.py [--hidden-size 256] [--sentences 96]`
"""

import argparse

from updates import PRECISIONS, measure

from gnmt.config import GNMTConfig


def main() -> None:
    """Print one line for each precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--sentences", type=int, default=96)
    parser.add_argument("--length", type=int, default=12, help="tokens of a source and of a target")
    options = parser.parse_args()
    config = GNMTConfig(vocab_size=options.vocab_size, hidden_size=options.hidden_size, first_residual_layer=2)
    for precision in PRECISIONS:
        speed = measure(config, options.sentences, options.length, precision)
        print(
            f"{precision}: {speed.tokens_per_second:,.0f} target tokens/s, {speed.milliseconds:.0f} ms an update, "
            f"{speed.share:.1%} of the machine's {speed.limit / 1e9:,.0f} GF/s"
        )


if __name__ == "__main__":
    main()
