"""What the diagnostics cost: time of one measurement against the updates from one to the next.

`python benchmarks/diagnostics.py [--hidden-size 256]` prints it for the default interval.
"""

import argparse
import types

import torch
from limits import seconds
from updates import PRECISIONS, measure

from gnmt.config import GNMTConfig, OptimizerConfig
from gnmt.training.diagnostics import Diagnostics
from gnmt.training.task import TranslationTask

EVERY = 50


def main() -> None:
    """Print one line for each precision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden-size", type=int, default=256)
    parser.add_argument("--sentences", type=int, default=96)
    parser.add_argument("--length", type=int, default=12)
    options = parser.parse_args()
    config = GNMTConfig(vocab_size=8000, hidden_size=options.hidden_size, first_residual_layer=2)
    task, diagnostics = TranslationTask(config, OptimizerConfig()), Diagnostics(EVERY)
    optimizer = torch.optim.SGD(task.parameters())
    for parameter in task.parameters():
        parameter.grad = torch.randn_like(parameter)
    trainer = types.SimpleNamespace(is_global_zero=True, global_step=0, loggers=[])

    def measurement() -> None:
        diagnostics.on_before_optimizer_step(trainer, task, optimizer)  # type: ignore[arg-type]
        diagnostics.on_train_batch_end(trainer, task)  # type: ignore[arg-type]

    cost = seconds(measurement) * 1e3
    for precision in PRECISIONS:
        update = measure(config, options.sentences, options.length, precision).milliseconds
        share = cost / (EVERY * update)
        print(f"{precision}: {cost:.0f} ms every {EVERY} updates of {update:.0f} ms: {share:.2%} of training")


if __name__ == "__main__":
    main()
