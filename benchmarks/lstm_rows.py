"""Why batches have a multiple of 16 sentences: time of the fused LSTM layer, forward and backward, by rows.

`python benchmarks/lstm_rows.py` prints times in bf16 and the share of the machine's own matrix-product rate.
"""

import torch
from limits import matmul_rate, seconds

WIDTH, STEPS = 256, 12


def main() -> None:
    """Print one line for each number of rows."""
    layer = torch.nn.LSTM(WIDTH, WIDTH)
    limit = matmul_rate(STEPS * 96, WIDTH, 4 * WIDTH, torch.bfloat16)
    for rows in (64, 80, 88, 95, 96, 97, 100, 112, 128):
        x = torch.randn(STEPS, rows, WIDTH, requires_grad=True)

        def work(x: torch.Tensor = x) -> None:
            with torch.autocast("cpu", torch.bfloat16):
                y, _ = layer(x)
            y.float().sum().backward()

        duration = seconds(work)
        operations = 3 * 2 * STEPS * rows * 8 * WIDTH * WIDTH
        print(
            f"{rows:4d} rows: {duration * 1e3:6.1f} ms, {operations / duration / limit:6.1%} of {limit / 1e9:,.0f} GF/s"
        )


if __name__ == "__main__":
    main()
