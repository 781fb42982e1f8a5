"""Speed of a training update, as target tokens a second and as a share of the machine's own matrix-product rate.

`python benchmarks/train.py [--hidden-size 256] [--sentences 96]`
"""

import argparse

import torch
from limits import matmul_rate, seconds

from gnmt.config import GNMTConfig, OptimizerConfig
from gnmt.nn.gnmt import GNMT
from gnmt.nn.loss import cross_entropy
from gnmt.optim import build_optimizer


def update_operations(network: GNMT, source_tokens: int, target_tokens: int) -> float:
    """Floating-point operations of the matrix products of one update: 2 forward and 4 backward for each weight used."""
    encoder = sum(p.numel() for p in network.encoder.parameters() if p.dim() > 1)
    decoder = sum(p.numel() for p in network.decoder.parameters() if p.dim() > 1)
    return 6.0 * (encoder * source_tokens + (decoder + network.output.weight.numel()) * target_tokens)


def main() -> None:
    """Print one line for each precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--sentences", type=int, default=96)
    parser.add_argument("--length", type=int, default=12, help="tokens of a source and of a target")
    options = parser.parse_args()
    config = GNMTConfig(vocab_size=options.vocab_size, hidden_size=options.hidden_size, first_residual_layer=2)
    network = GNMT(config)
    optimizer, _ = build_optimizer(network, OptimizerConfig(), total_steps=1000)
    shape = options.length, options.sentences
    source, target = torch.randint(4, options.vocab_size, (2, *shape))
    lengths, mask = torch.full(shape[1:], shape[0]), torch.ones(shape, dtype=torch.bool)
    tokens = target.numel()
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):

        def update(dtype: torch.dtype = dtype) -> None:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
                sums = cross_entropy(network(source, lengths, target, mask), target.flatten(), 0.1)
            (sums.smoothed / sums.tokens).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        duration = seconds(update)
        limit = matmul_rate(tokens, config.hidden_size, 4 * config.hidden_size, dtype)
        share = update_operations(network, tokens, tokens) / duration / limit
        print(
            f"{name}: {tokens / duration:,.0f} target tokens/s, {duration * 1e3:.0f} ms an update of {tokens}, "
            f"{share:.1%} of the machine's {limit / 1e9:,.0f} GF/s"
        )


if __name__ == "__main__":
    main()
