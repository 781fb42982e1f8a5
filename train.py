"""Train a translator: `python train.py [--config configs/NAME.yaml] [--model.network.hidden_size 512 ...]`."""

import sys

from gnmt.errors import run_program
from gnmt.training.run import main

if __name__ == "__main__":
    sys.exit(run_program(main))
