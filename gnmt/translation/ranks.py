"""One command on many machines: `srun` or `torchrun` start it as several ranks, each translates a part of the file."""

import argparse
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import torch

from gnmt.errors import ConfigError
from gnmt.files import lock, new_file
from gnmt.translation.streams import note_of

# The launchers' variables for the own number and the number of all; SLURM_NTASKS is set without any launcher too.
_LAUNCHERS = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"))


class Rank(NamedTuple):
    """Which of several processes this one is.

    Attributes:
        number: from 0.
        world_size: of all.
    """

    number: int
    world_size: int

    def lines(self, total: int) -> range:
        """The lines, counted from 0, that are this rank's out of `total`."""
        return range(self.number * total // self.world_size, (self.number + 1) * total // self.world_size)

    def part(self, output: Path) -> Path:
        """The file of this rank's lines."""
        return output.with_name(f"{output.name}.rank-{self.number}-of-{self.world_size}")


def find_rank() -> Rank:
    """What the launcher says in the environment; without one, this is the only process.

    Raises:
        ConfigError: the launcher's variables make no sense.
    """
    for number, count in _LAUNCHERS:
        if number in os.environ and count in os.environ:
            try:
                rank = Rank(int(os.environ[number]), int(os.environ[count]))
            except ValueError:
                rank = Rank(0, 0)
            if not 0 <= rank.number < rank.world_size:
                raise ConfigError(
                    f"{number} is {os.environ[number]!r} and {count} {os.environ[count]!r}, expected a rank"
                )
            return rank
    return Rank(0, 1)


def options_of_rank(options: argparse.Namespace, rank: Rank) -> argparse.Namespace:
    """The command line of one rank: it writes a part, and goes on with it if it was interrupted.

    Raises:
        ConfigError: files that are needed are standard streams, or something cannot be done in parts.
    """
    if options.input == "-" or options.output == "-":
        raise ConfigError("several ranks with a standard stream, expected files for --input and --output")
    if options.reference or options.alignments or options.paragraphs or options.score_only:
        raise ConfigError("several ranks with --reference, --alignments, --paragraphs or --score-only: use one process")
    if options.precision == "auto":
        raise ConfigError("several ranks with --precision auto, which each would measure for itself: name a precision")
    changes = {"output": str(rank.part(Path(options.output))), "resume_output": True}
    local = os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID"))
    if options.device == "auto" and local is not None and torch.cuda.is_available():
        # A launcher may show each rank only its own GPU.
        changes["device"] = f"cuda:{int(local) % torch.cuda.device_count()}"
    return argparse.Namespace(**{**vars(options), **changes})


def merge(output: Path, world_size: int) -> bool:
    """Put the parts together in order, if all are there; whoever finishes last does it.

    Returns:
        whether this call did.
    """
    parts = [Rank(number, world_size).part(output) for number in range(world_size)]
    with output.with_name(f".{output.name}.merge").open("w") as file:
        lock(file, wait=True)
        is_last = all(part.exists() for part in parts)
        if is_last:
            with new_file(output) as whole, whole.open("wb") as target:
                for part in parts:
                    with part.open("rb") as source:
                        shutil.copyfileobj(source, target)
            for path in (*parts, *map(note_of, parts)):
                path.unlink(missing_ok=True)
        if is_last or output.exists():
            Path(file.name).unlink(missing_ok=True)
    return is_last
