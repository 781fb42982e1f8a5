"""The command line of training: one YAML is one run, every key is an option, unknown keys are refused."""

import contextlib
import difflib
import logging
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import datasets
import torch
from jsonargparse import ArgumentError
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger

from gnmt.checkpoint import load_model, save_model
from gnmt.errors import CheckpointError, ConfigError, DataError
from gnmt.metrics import Scores
from gnmt.training.callbacks import MetricsFile, Throughput, checkpoints
from gnmt.training.card import model_card
from gnmt.training.data import TranslationData
from gnmt.training.task import TranslationTask

logger = logging.getLogger(__name__)

DEFAULT_CONFIG = Path(__file__).resolve().parents[2] / "configs" / "default.yaml"
# What a run writes before its first checkpoint; a folder with nothing else holds nothing to lose.
_BEFORE_FIRST_CHECKPOINT = {
    "config.yaml",
    "hparams.yaml",
    "metrics.csv",
    "tokenizer.model",
    "checkpoints",
    "validation",
}


class TrainingCLI(LightningCLI):
    """LightningCLI with the run folder's files, early stopping, and the settings that link model and data."""

    trainer: Trainer
    model: TranslationTask
    datamodule: TranslationData

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add what is neither trainer, model nor data."""
        parser.add_argument(
            "--ckpt_path", type=str | None, default=None, help="resume: 'last' or the path of a training checkpoint"
        )
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.set_defaults(
            {
                "early_stopping.monitor": "val/bleu",
                "early_stopping.mode": "max",
                "early_stopping.check_on_train_epoch_end": False,  # a resumed epoch may end without a validation
            }
        )
        parser.link_arguments("model.network.vocab_size", "data.vocab_size")
        parser.link_arguments("seed_everything", "data.seed")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse, and say in one line what is wrong; an unknown key is named with its likeliest meaning."""
        try:
            self.config = parser.parse_args(args)
        except ArgumentError as error:
            message = " ".join(str(error).split())
            unknown = re.search(r"(?:unrecognized arguments: --|does not accept option ')([\w.]+)", message)
            if unknown:
                known = {key.rpartition(".")[2]: key for key in parser.get_defaults().as_flat().__dict__}
                close = difflib.get_close_matches(unknown[1].rpartition(".")[2], known, n=1)
                message += f"; did you mean {known[close[0]]}?" if close else "; --help lists all"
            raise ConfigError(message) from None

    @property
    def run_folder(self) -> Path:
        """`trainer.default_root_dir`, or `runs/` and the name of the configuration file."""
        folder = self.config.trainer.default_root_dir
        return Path(folder) if folder else Path("runs") / Path(str(self.config.config[-1])).stem

    def before_instantiate_classes(self) -> None:
        """Refuse to touch a folder that holds another run."""
        folder, resume = self.run_folder, self.config.ckpt_path
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"run folder {folder} is a file; name another --trainer.default_root_dir")
        if resume is None and folder.is_dir() and not _is_fresh(folder):
            raise ConfigError(
                f"run folder {folder} is not empty: continue it with --ckpt_path last, "
                "name another --trainer.default_root_dir, or delete it"
            )
        if resume == "last":
            self.config.ckpt_path = str(folder / "checkpoints" / "last.ckpt")
        if self.config.ckpt_path and not Path(self.config.ckpt_path).is_file():
            raise CheckpointError(f"no checkpoint {self.config.ckpt_path} to resume from; leave out --ckpt_path")

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Build the trainer with the run folder's loggers and checkpoints, and a precision that fits the processor."""
        folder, settings = self.run_folder, self.config_init.trainer
        kwargs["default_root_dir"] = folder
        # The checkpoint that is exported is the best one in what early stopping watches.
        watched = self.config.early_stopping
        kept = checkpoints(folder / "checkpoints", watched.monitor, watched.mode)
        kwargs["callbacks"] = [*(settings.callbacks or []), Throughput(), *kept]
        kwargs["use_distributed_sampler"] = False
        if settings.logger is None:
            kwargs["logger"] = [MetricsFile(folder), TensorBoardLogger(folder, name="", version="")]
        if settings.precision is None:
            kwargs["precision"] = "bf16-mixed" if _multiplies_bfloat16(settings.accelerator) else "32-true"
        if settings.enable_progress_bar is None:
            kwargs["enable_progress_bar"] = sys.stderr.isatty()
        if settings.enable_model_summary is None:
            kwargs["enable_model_summary"] = False
        return super().instantiate_trainer(**kwargs)


def _is_fresh(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir() if not path.name.startswith("events.out.tfevents")}
    has_checkpoint = any((folder / "checkpoints").glob("*.ckpt"))
    return names <= _BEFORE_FIRST_CHECKPOINT and not has_checkpoint


def _multiplies_bfloat16(accelerator: Any) -> bool:
    """Whether the device that will be used has instructions for bfloat16 products."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def build(arguments: list[str], cli_class: type[TrainingCLI] = TrainingCLI) -> TrainingCLI:
    """Parse the command line's arguments (over `configs/default.yaml` if they name no --config) and build the run.

    Raises:
        GNMTError: a key is unknown, a value impossible, or the run folder is in use.
    """
    if not any(argument == "--config" or argument.startswith("--config=") for argument in arguments):
        arguments = ["--config", str(DEFAULT_CONFIG), *arguments]
    return cli_class(
        TranslationTask,
        TranslationData,
        args=arguments,
        run=False,
        save_config_callback=None,
        seed_everything_default=1,
        auto_configure_optimizers=False,
        load_from_checkpoint_support=False,
        parser_kwargs={"allow_abbrev": False, "exit_on_error": False},
    )


def train(arguments: list[str]) -> Scores | None:
    """Run a training from the command line's arguments: fit, test, export.

    Returns:
        the test scores, if there is a test corpus and training was not interrupted.

    Raises:
        GNMTError: the configuration, the corpus or the checkpoint cannot be used.
    """
    # oneDNN compiles its kernels anew for each shape of a batch, and its own default forgets them within an epoch.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")
    cli = build(arguments)
    folder = cli.run_folder
    if cli.trainer.is_global_zero:
        folder.mkdir(parents=True, exist_ok=True)
        settings = cli.config.clone()
        settings.ckpt_path = None  # how this run was started is no part of what it is
        cli.parser.save(settings, folder / "config.yaml", overwrite=True, multifile=False)
    _log_summary(cli)
    try:
        cli.trainer.fit(cli.model, cli.datamodule, ckpt_path=cli.config.ckpt_path, weights_only=True)
    except SystemExit:  # what Lightning makes of Ctrl-C, after it has saved last.ckpt
        logger.warning("interrupted at step %d; continue with --ckpt_path last", cli.trainer.global_step)
        raise KeyboardInterrupt from None
    best = folder / "checkpoints" / "best.ckpt"
    if not best.exists():
        raise DataError(f"training ended before the first validation; nothing to export from {folder}")
    if cli.datamodule.has_test:
        cli.trainer.test(cli.model, cli.datamodule, ckpt_path=str(best), weights_only=True, verbose=False)
    if cli.trainer.is_global_zero:
        model = load_model(best)
        save_model(model, folder / "model", model_card(cli.config, model, cli.model.test_scores))
        logger.info("exported %s", folder / "model")
    return cli.model.test_scores


def _log_summary(cli: TrainingCLI) -> None:
    config = cli.model.network.config
    logger.info(
        "GNMT with %d encoder layers (%d bidirectional) and %d decoder layers of width %d, shortcuts from layer %d, "
        "additive attention, vocabulary %d, %.1f million parameters, precision %s, run folder %s",
        config.num_encoder_layers,
        config.num_bidirectional_layers,
        config.num_decoder_layers,
        config.hidden_size,
        config.first_residual_layer,
        config.vocab_size,
        sum(parameter.numel() for parameter in cli.model.network.parameters()) / 1e6,
        cli.trainer.precision,
        cli.run_folder,
    )


def _quiet_libraries() -> None:
    """Send our own log to stderr, and keep the libraries' remarks about themselves out of it."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    for library in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(library).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*treespec, LeafSpec.*", category=FutureWarning)
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()


def main() -> int:
    """Run `train.py`: exit status 0, 1 at a run-time failure, 2 for bad input, 130 when interrupted."""
    _quiet_libraries()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            scores = train(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    if scores:
        print(scores)
    return 0
