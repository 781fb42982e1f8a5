"""Speed of translation, as sentences a second and as a share of the machine's own matrix-product rate.

`python benchmarks/translate.py MODEL SOURCE_FILE [--beam-size 5] [--batch-size 64]`
"""

import argparse
import itertools
import time

import torch
from limits import matmul_rate

from gnmt import SearchConfig, Translator
from gnmt.checkpoint import load_model
from gnmt.lines import read_lines


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("source")
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--beam-size", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()
    search = SearchConfig(beam_size=options.beam_size)
    translator = Translator(load_model(options.model), search, device="cpu", batch_size=options.batch_size)
    lines = list(itertools.islice(read_lines(options.source), options.lines))
    translator.translate_batch(lines[: options.batch_size])
    start = time.perf_counter()
    translations = translator.translate_batch(lines)
    duration = time.perf_counter() - start
    network, tokenizer = translator.network, translator.tokenizer
    steps = sum(len(tokenizer.encode(translation.text)) + 1 for translation in translations)
    sources = sum(translation.source_tokens + 1 for translation in translations)
    encoder = sum(p.numel() for p in network.encoder.parameters() if p.dim() > 1)
    decoder = sum(p.numel() for p in network.decoder.parameters() if p.dim() > 1) + network.output.weight.numel()
    operations = 2.0 * (encoder * sources + decoder * steps * options.beam_size)
    width = network.config.hidden_size
    limit = matmul_rate(options.batch_size * options.beam_size, 2 * width, 4 * width, torch.float32)
    share = operations / duration / limit
    print(
        f"fp32, beam {options.beam_size}, batch {options.batch_size}: {len(lines) / duration:.1f} sentences/s, "
        f"{steps / duration:,.0f} output tokens/s, {share:.1%} of the machine's {limit / 1e9:,.0f} GF/s"
    )


if __name__ == "__main__":
    main()
