"""A training from its command line to the exported model: fit, test, export."""

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from gnmt.checkpoint import load_model, save_model
from gnmt.data.bitext import hide_progress_bars
from gnmt.errors import DataError, is_out_of_memory
from gnmt.metrics import Scores
from gnmt.nn.lstm import keep_compiled_kernels
from gnmt.training.card import model_card
from gnmt.training.cli import TrainingCLI, build
from gnmt.training.folder import is_first_process
from gnmt.training.resume import is_exported, read_position, what_would_go_on
from gnmt.training.stopping import EarlyStopping

logger = logging.getLogger(__name__)


def train(arguments: list[str]) -> Scores | None:
    """Run a training.

    Args:
        arguments: of the command line.

    Returns:
        the test scores; None if there is no test corpus, if the run was finished before, and in all processes but
        the first.

    Raises:
        GNMTError: the configuration, the corpus or the checkpoint cannot be used.
        FloatingPointError: the training diverged.
        MemoryError: there is not enough memory.
        KeyboardInterrupt: it was interrupted, and `last.ckpt` is written.
    """
    keep_compiled_kernels()
    cli = build(arguments)
    with cli.lock, contextlib.redirect_stdout(sys.stderr):  # where Lightning's progress bar goes
        if cli.config.ckpt_path is not None and _is_finished(cli):
            return None
        _log_summary(cli)
        with _explained(cli):
            cli.trainer.fit(cli.model, cli.datamodule, ckpt_path=cli.config.ckpt_path, weights_only=True)
        return _finish(cli)


def _is_finished(cli: TrainingCLI) -> bool:
    """Whether nothing is left to do; says so, or where the run is continued."""
    stopping = cli.trainer.early_stopping_callback
    assert isinstance(stopping, EarlyStopping)
    position = read_position(Path(cli.config.ckpt_path), stopping)
    advice = what_would_go_on(position, cli.trainer, stopping)
    if advice and is_exported(cli.run_folder, cli.datamodule.has_test):
        logger.info(
            "the run in %s is finished (%d epochs, %d updates); %s",
            cli.run_folder,
            position.epochs,
            position.updates,
            advice,
        )
        return True
    logger.info(
        "continuing %s after %d epochs and %d updates%s",
        cli.config.ckpt_path,
        position.epochs,
        position.updates,
        ", which is the end of training: test and export are left" if advice else "",
    )
    return False


@contextlib.contextmanager
def _explained(cli: TrainingCLI) -> Iterator[None]:
    """Say of what ends a run before its time how it goes on."""

    def advice() -> str:
        has_checkpoint = (cli.run_folder / "checkpoints" / "last.ckpt").exists()
        return "continue with --ckpt_path last" if has_checkpoint else "start it again"

    try:
        yield
    except FloatingPointError as error:
        raise FloatingPointError(f"{error} and {advice()}") from None
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise MemoryError(
            f"there is not enough memory at step {cli.trainer.global_step}; lower data.batch.tokens_per_batch, now "
            f"{cli.config.data.batch.tokens_per_batch}, and {advice()}"
        ) from None
    except SystemExit:  # what Lightning makes of Ctrl-C
        logger.warning("interrupted at step %d; %s", cli.trainer.global_step, advice())
        raise KeyboardInterrupt from None


def _finish(cli: TrainingCLI) -> Scores | None:
    """Test and export the best checkpoint."""
    folder = cli.run_folder
    best = folder / "checkpoints" / "best.ckpt"
    if not best.exists():
        cli.trainer.save_checkpoint(folder / "checkpoints" / "last.ckpt")
        raise DataError(
            f"training ended at step {cli.trainer.global_step}, before its first validation: nothing to export; "
            "raise trainer.max_epochs or max_steps, or validate more often, and continue with --ckpt_path last"
        )
    if cli.datamodule.has_test:
        with _explained(cli):
            cli.trainer.test(cli.model, cli.datamodule, ckpt_path=str(best), weights_only=True, verbose=False)
    if not cli.trainer.is_global_zero:
        return None
    model = load_model(best)
    save_model(model, folder / "model", model_card(cli.config, model, cli.model.test_scores))
    logger.info("exported %s", folder / "model")
    return cli.model.test_scores


def _log_summary(cli: TrainingCLI) -> None:
    config = cli.model.network.config
    logger.info(
        "GNMT with %d encoder layers (%d bidirectional) and %d decoder layers, cell %s, width %d, wiring %s, "
        "%s attention, vocabulary %d, %.1f million parameters, precision %s (%s), run folder %s",
        config.num_encoder_layers,
        config.num_bidirectional_layers,
        config.num_decoder_layers,
        config.cell,
        config.hidden_size,
        config.wiring,
        config.attention,
        config.vocab_size,
        sum(parameter.numel() for parameter in cli.model.network.parameters()) / 1e6,
        cli.trainer.precision,
        cli.precision_reason,
        cli.run_folder,
    )


def _set_up_logging() -> None:
    """Send our own log to stderr, and keep the libraries' remarks about themselves out of it.

    What several processes do alike the first one tells; the others only warn.
    """
    level = logging.INFO if is_first_process() else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for library in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(library).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*treespec, LeafSpec.*", category=FutureWarning)
    if not sys.stderr.isatty():
        hide_progress_bars()


def main() -> int:
    """Run `train.py`: exit status 0, or 1 if the training diverged, or memory or the disk failed."""
    _set_up_logging()
    try:
        scores = train(sys.argv[1:])
    except (FloatingPointError, MemoryError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if scores:
        print(scores)
    return 0
