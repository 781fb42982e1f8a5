"""Train a translator: `python train.py [--config configs/NAME.yaml] [--model.network.hidden_size 512 ...]`."""

import sys

from gnmt.errors import run_program


def main() -> int:
    """Run the program; what takes seconds to load is loaded in here, where Ctrl-C is answered."""
    from gnmt.training.run import main as run_training

    return run_training()


if __name__ == "__main__":
    sys.exit(run_program(main))
