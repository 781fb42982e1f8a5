"""The command line of training: one YAML is one run, every key is an option, unknown keys are refused."""

import contextlib
import difflib
import glob
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger

from gnmt.checkpoint import Model, load_model
from gnmt.errors import CheckpointError, ConfigError
from gnmt.files import LOCK
from gnmt.training.arguments import (
    STRICT_YAML,
    config_files,
    explain_encoding,
    register_strict_yaml,
    split_off_configs,
)
from gnmt.training.callbacks import BatchCounter, Interruption, MetricsFile, RunConfig, checkpoints
from gnmt.training.data import TranslationData
from gnmt.training.diagnostics import Diagnostics
from gnmt.training.folder import is_fresh, kept_precision, only_run_in
from gnmt.training.precision import choose_precision
from gnmt.training.progress import ProgressLines
from gnmt.training.speed import Throughput
from gnmt.training.stopping import EarlyStopping
from gnmt.training.task import TranslationTask

DEFAULT_CONFIG = Path(__file__).resolve().parents[2] / "configs" / "default.yaml"
_DESCRIPTION = (
    "Train a translator. One YAML file is one whole run, and every key of it is an option that overrides the file. "
    "Without --config the run is configs/default.yaml. The defaults below are those of the files named with --config, "
    "or of configs/default.yaml; --print_config shows the whole run that the options make, and starts nothing."
)
MONITORS = {"val/loss": "min", "val/ppl": "min", "val/bleu": "max", "val/chrf": "max"}


class TrainingCLI(LightningCLI):
    """LightningCLI with the run folder's files, early stopping, and the settings that link model and data."""

    trainer: Trainer
    model: TranslationTask
    datamodule: TranslationData
    precision_reason: str
    lock: contextlib.ExitStack

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Add what is neither trainer, model nor data."""
        parser.add_argument(
            "--ckpt_path", type=str | None, default=None, help="resume: 'last' or a checkpoint of the run folder"
        )
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.set_defaults(
            {
                "early_stopping.monitor": "val/bleu",
                "early_stopping.mode": "max",
                "early_stopping.check_on_train_epoch_end": False,  # a resumed epoch may end without a validation
            }
        )
        parser.add_lightning_class_args(Diagnostics, "diagnostics")
        parser.link_arguments("model.network.vocab_size", "data.vocab_size")
        parser.link_arguments("seed_everything", "data.seed")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse, and say in one line what is wrong; an unknown key is named with its likeliest meaning."""
        if not {"-h", "--help"}.isdisjoint(args):
            # Only for help, which then shows what a run would use: they would leak into the runs of other files.
            parser.default_config_files = [glob.escape(name) for name in config_files(args)]
        try:
            self.config = parser.parse_args(args)
        except UnicodeDecodeError as error:
            raise ConfigError(explain_encoding(error, args)) from None
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
        """Check what needs no model: settings that this program does not take, the checkpoint, the run folder.

        The run folder is this run's alone from here on, until `lock` is closed or the process ends.
        """
        self._check_settings()
        folder = self.run_folder
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"run folder {folder} is a file; name another --trainer.default_root_dir")
        if self.config.ckpt_path is not None:
            self._check_checkpoint(folder)
        elif not (folder / LOCK).exists():  # a folder that is no run's does not even get a lock
            self._check_folder(folder)
        self.lock = contextlib.ExitStack()
        self.lock.enter_context(only_run_in(folder))
        if self.config.ckpt_path is None:
            self._check_folder(folder)

    def _check_folder(self, folder: Path) -> None:
        if folder.is_dir() and not is_fresh(folder):
            raise ConfigError(
                f"run folder {folder} is not empty: continue it with --ckpt_path last, "
                "name another --trainer.default_root_dir, or delete it"
            )

    def _check_settings(self) -> None:
        watched, trainer = self.config.early_stopping, self.config.trainer
        if MONITORS.get(watched.monitor) != watched.mode:
            expected = ", ".join(f"{monitor} with mode {mode}" for monitor, mode in MONITORS.items())
            raise ConfigError(
                f"early_stopping.monitor {watched.monitor} with mode {watched.mode}, expected one of: {expected}"
            )
        if watched.patience < 1 or watched.check_on_train_epoch_end:
            raise ConfigError(
                f"early_stopping.patience is {watched.patience} and check_on_train_epoch_end "
                f"{watched.check_on_train_epoch_end}, expected at least 1 and false: validations are counted"
            )
        if trainer.accumulate_grad_batches != 1:
            raise ConfigError(
                f"trainer.accumulate_grad_batches is {trainer.accumulate_grad_batches}, expected 1; "
                "for larger batches raise data.batch.tokens_per_batch"
            )

    def _check_checkpoint(self, folder: Path) -> None:
        """Resolve `last`, and refuse what is not a checkpoint of this run before anything is changed."""
        if self.config.ckpt_path == "last":
            self.config.ckpt_path = str(folder / "checkpoints" / "last.ckpt")
        path = Path(self.config.ckpt_path)
        if not path.is_file():
            raise CheckpointError(f"no checkpoint {path} to resume from; leave out --ckpt_path to start anew")
        if folder.resolve() not in path.resolve().parents:
            raise ConfigError(
                f"checkpoint {path} is not in run folder {folder}; set --trainer.default_root_dir to its own"
            )

    def instantiate_classes(self) -> None:
        """Build everything; what Lightning refuses is the user's mistake."""
        try:
            super().instantiate_classes()
        except (MisconfigurationException, ModuleNotFoundError, ValueError, RuntimeError) as error:
            raise ConfigError(" ".join(str(error).split())) from None
        if self.config.ckpt_path is not None:
            self._check_model(load_model(self.config.ckpt_path))

    def _check_model(self, model: Model) -> None:
        """Refuse to continue a model of another form or of other languages."""
        found, wanted = asdict(model.network.config), asdict(self.model.network.config)
        if others := [name for name in wanted if found[name] != wanted[name]]:
            raise ConfigError(
                f"{self.config.ckpt_path} holds a network of {_settings(found, others)}, the configuration says "
                f"{_settings(wanted, others)}"
            )
        languages, data = (model.source_lang, model.target_lang), self.datamodule
        if languages != (data.source_lang, data.target_lang):
            raise ConfigError(
                f"{self.config.ckpt_path} translates {' to '.join(languages)}, the configuration says "
                f"{data.source_lang} to {data.target_lang}"
            )

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        """Build the trainer with the run folder's loggers and checkpoints, and a precision that fits the processor."""
        folder, settings = self.run_folder, self.config_init.trainer
        is_resuming = self.config.ckpt_path is not None
        self.datamodule.keeps_vocabulary = is_resuming
        kwargs["default_root_dir"] = folder
        # The checkpoint that is exported is the best one in what early stopping watches.
        watched = self.config.early_stopping
        kwargs["callbacks"] = [
            BatchCounter(),
            RunConfig(self._write_config),
            *(settings.callbacks or []),
            Throughput(),
            Interruption(),
            *checkpoints(folder / "checkpoints", watched.monitor, watched.mode),
        ]
        kwargs["use_distributed_sampler"] = False
        if settings.logger is None:
            kwargs["logger"] = [MetricsFile(folder, is_resuming), TensorBoardLogger(folder, name="", version="")]
        kwargs["precision"] = self._settle_precision()
        shows_bar = sys.stderr.isatty() if settings.enable_progress_bar is None else settings.enable_progress_bar
        kwargs["enable_progress_bar"] = shows_bar
        if not shows_bar:
            kwargs["callbacks"].append(ProgressLines())
        if settings.enable_model_summary is None:
            kwargs["enable_model_summary"] = False
        return super().instantiate_trainer(**kwargs)

    def _settle_precision(self) -> str:
        """The precision of the run: the one named, or that of the run that is resumed, or one that fits the processor.

        It becomes part of the configuration, and so of the run folder's `config.yaml`.
        """
        settings = self.config.trainer
        kept = kept_precision(self.run_folder) if self.config.ckpt_path is not None else None
        if settings.precision is not None:
            is_other = kept not in (None, str(settings.precision))
            self.precision_reason = (
                f"named now; the run was trained with {kept} so far" if is_other else "as configured"
            )
        elif kept is not None:
            settings.precision, self.precision_reason = kept, "of the run that is continued"
        else:
            settings.precision, self.precision_reason = choose_precision(
                str(settings.accelerator),
                str(settings.devices) in ("1", "auto") and settings.num_nodes == 1,
                self.model.network.config.hidden_size,
                self.config.data.batch.tokens_per_batch,
            )
        return str(settings.precision)

    def _write_config(self) -> None:
        """Write `config.yaml`, which repeats the run as --config."""
        settings = self.config.clone()
        settings.ckpt_path = None  # how the run was started is no part of what it is
        self.parser.save(settings, self.run_folder / "config.yaml", overwrite=True, multifile=False)


def _settings(values: Mapping[str, Any], names: Iterable[str]) -> str:
    return ", ".join(f"{name}={values[name]}" for name in names)


def build(arguments: list[str], cli_class: type[TrainingCLI] = TrainingCLI) -> TrainingCLI:
    """Parse the command line's arguments (over `configs/default.yaml` if they name no --config) and build the run.

    Raises:
        GNMTError: a key is unknown, a value impossible, or the run folder is in use.
    """
    register_strict_yaml()
    configs, options = split_off_configs(arguments)
    arguments = [*(configs or ["--config", str(DEFAULT_CONFIG)]), *options]
    return cli_class(
        TranslationTask,
        TranslationData,
        args=arguments,
        run=False,
        save_config_callback=None,
        seed_everything_default=1,
        auto_configure_optimizers=False,
        load_from_checkpoint_support=False,
        parser_kwargs={
            "allow_abbrev": False,
            "exit_on_error": False,
            "parser_mode": STRICT_YAML,
            "usage": "train.py [--config FILE] [--KEY VALUE ...]",
            "description": _DESCRIPTION,
        },
    )
