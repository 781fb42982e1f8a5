"""Train a translator: `python train.py [--config configs/NAME.yaml] [--model.network.hidden_size 512 ...]`."""

import sys


def main() -> int:
    """Load and run the program; importing torch takes a second, and an interrupt meanwhile is one like any other."""
    from gnmt.errors import run_program
    from gnmt.training.run import main as train

    return run_program(train)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
