"""What the study trains: the grid of stacks, and each training as a value that names its result."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gnmt.config import CorpusConfig, GNMTConfig
from gnmt.errors import ConfigError

VARIANTS = {
    "plain": {"shortcut": "none", "layer_norm": False},
    "residual": {"shortcut": "project", "layer_norm": False},
    "residual_norm": {"shortcut": "project", "layer_norm": True},
}


@dataclass(frozen=True)
class Stack:
    """One network of the grid: every layer of encoder and decoder is unidirectional and of the same width.

    Attributes:
        cell: as in `GNMTConfig`.
        variant: a key of `VARIANTS`; shortcuts begin at layer 2.
        depth: layers of the encoder, and of the decoder, which has at least two: in a decoder of one layer the context
            goes straight to the softmax, which would compare another network.
        width: of embeddings and layers.
        init_range: as in `GNMTConfig`.
    """

    cell: str
    variant: str
    depth: int
    width: int
    init_range: float = 0.08

    def network(self, vocab_size: int) -> GNMTConfig:
        """The network's configuration, without dropout: the study is of what can be learned at all."""
        variant = VARIANTS[self.variant]
        return GNMTConfig(
            vocab_size=vocab_size,
            hidden_size=self.width,
            num_encoder_layers=self.depth,
            num_decoder_layers=max(2, self.depth),
            num_bidirectional_layers=0,
            cell=self.cell,
            shortcut=str(variant["shortcut"]),
            first_residual_layer=2,
            layer_norm=bool(variant["layer_norm"]),
            dropout=0.0,
            init_range=self.init_range,
        )


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        stage: what it is for: `search`, `final`, `initialisation` or `clipping`.
        stack: what is trained.
        learning_rate: peak rate; warm-up over a tenth of the updates, then a cosine.
        updates: number of updates.
        seed: of weights and order of batches.
        clip_norm: largest global gradient norm; None for no clipping.
    """

    stage: str
    stack: Stack
    learning_rate: float
    updates: int
    seed: int
    clip_norm: float | None = 1.0

    @property
    def key(self) -> str:
        """What names its result in `runs.jsonl`."""
        return repr(self)


@dataclass(frozen=True)
class StudyConfig:
    """The size of a study.

    Attributes:
        source_lang: language code of the source.
        target_lang: language code of the target.
        train: training corpus.
        validation: validation corpus.
        cells: recurrent cells.
        depths: layers on each side.
        width: of all layers.
        vocab_size: shared pieces.
        tokens_per_batch: see `gnmt.config.BatchConfig`.
        validation_batches: at most so many batches of the validation corpus, in random order, are used.
        learning_rates: what is tried for each stack in short trials.
        num_candidates: best rates of the trials that are trained in full with the first seed; the better one is taken.
        search_updates: updates of a trial.
        updates: updates of a final training.
        side_updates: updates of the trainings on initialisation and clipping.
        seeds: of the final trainings; the first one serves the trials.
        side_seeds: of the trainings on initialisation and clipping.
        side_depth: depth at which initialisation and clipping are studied.
        init_ranges: initialisations that are compared.
    """

    train: CorpusConfig
    validation: CorpusConfig
    source_lang: str = "en"
    target_lang: str = "de"
    cells: tuple[str, ...] = ("rnn", "lstm")
    depths: tuple[int, ...] = (1, 2, 4, 6, 8, 12)
    width: int = 128
    vocab_size: int = 2000
    tokens_per_batch: int = 448
    validation_batches: int = 100
    learning_rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
    num_candidates: int = 2
    search_updates: int = 100
    updates: int = 400
    side_updates: int = 200
    seeds: tuple[int, ...] = (1, 2, 3)
    side_seeds: tuple[int, ...] = (1, 2)
    side_depth: int = 8
    init_ranges: tuple[float, ...] = (0.02, 0.08, 0.15, 0.3)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depths", tuple(sorted(set(self.depths))))
        object.__setattr__(self, "cells", tuple(dict.fromkeys(self.cells)))
        if self.source_lang == self.target_lang:
            raise ConfigError(f"source and target language are both {self.source_lang!r}, expected two languages")
        if len(self.depths) < 2 or self.depths[0] < 1 or self.side_depth not in self.depths:
            raise ConfigError(
                f"depths {list(self.depths)}, expected at least two, each at least 1, {self.side_depth} among them"
            )

    def quick(self) -> "StudyConfig":
        """A version that takes less than three minutes on two cores; its numbers show the way, no more."""
        return dataclasses.replace(
            self,
            depths=(1, 8),
            width=32,
            validation_batches=4,
            learning_rates=(2e-3, 8e-3),
            num_candidates=1,
            search_updates=12,
            updates=24,
            side_updates=12,
            seeds=(1, 2),
            side_seeds=(1,),
            init_ranges=(0.02, 0.08),
        )

    def stacks(self) -> list[Stack]:
        """The grid, and for each cell the plain stack of a quarter of `side_depth` whose width costs the same."""
        grid = [
            Stack(cell, variant, depth, self.width)
            for cell in self.cells
            for depth in self.depths
            for variant in VARIANTS
        ]
        return grid + [self.wide_stack(cell) for cell in self.cells]

    def wide_stack(self, cell: str) -> Stack:
        """A quarter of the layers, twice as wide: about the same number of multiplications in the stack."""
        return Stack(cell, "plain", max(1, self.side_depth // 4), 2 * self.width)

    def untrained(self) -> dict[str, GNMTConfig]:
        """Networks of `side_depth` layers whose gradient is followed at the start only, by the name of the result.

        Plain stacks with each initialisation, and each kind of shortcut where layers come in pairs of two widths.
        """
        sizes = tuple(self.width if number % 4 < 2 else self.width * 3 // 4 for number in range(self.side_depth))[::-1]
        found = {}
        for cell in self.cells:
            plain = Stack(cell, "plain", self.side_depth, self.width).network(self.vocab_size)
            for init_range in self.init_ranges:
                found[f"start {cell} {init_range:g}"] = dataclasses.replace(plain, init_range=init_range)
            for shortcut in ("none", "add", "project"):
                found[f"start {cell} {shortcut}"] = dataclasses.replace(
                    plain, shortcut=shortcut, encoder_layer_sizes=sizes, decoder_layer_sizes=sizes
                )
        return found

    def searches(self) -> list[Run]:
        """Each stack with each learning rate."""
        seed = self.seeds[0]
        return [
            Run("search", stack, rate, self.search_updates, seed)
            for stack in self.stacks()
            for rate in self.learning_rates
        ]

    def finals(self, rates: Mapping[Stack, Sequence[float]], seeds: Sequence[int]) -> list[Run]:
        """Each stack with its rates and each of the seeds; long ones first, so that no worker ends late."""
        runs = [
            Run("final", stack, rate, self.updates, seed)
            for seed in seeds
            for stack, chosen in rates.items()
            for rate in chosen
        ]
        return sorted(runs, key=lambda run: (run.seed, -run.stack.depth))

    def sides(self, best_rates: Mapping[Stack, float]) -> list[Run]:
        """Other initialisations, and no clipping, at `side_depth` and the rate that is best with the usual ones."""
        runs = []
        for stack, rate in best_rates.items():
            if stack.depth != self.side_depth or stack.width != self.width:
                continue
            for seed in self.side_seeds:
                for init_range in self.init_ranges:
                    changed = dataclasses.replace(stack, init_range=init_range)
                    runs.append(Run("initialisation", changed, rate, self.side_updates, seed))
                for clip_norm in (1.0, None):
                    runs.append(Run("clipping", stack, rate, self.side_updates, seed, clip_norm))
        return runs
