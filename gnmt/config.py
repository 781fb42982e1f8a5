"""Settings as frozen dataclasses, checked when they are made: one dataclass for each part of the system.

The same classes are the Python API, the sections of a YAML file and the command line's dotted options.
Sources: "paper" is Wu et al. 2016 (arXiv 1609.08144).
"""

from dataclasses import dataclass

from gnmt.errors import ConfigError

INFINITY = float("inf")


def _require(valid: bool, found: str, expected: str) -> None:
    if not valid:
        raise ConfigError(f"{found}, expected {expected}")


def _require_range(settings: object, names: str, low: float, high: float, *, open_end: bool = False) -> None:
    """Check that each named field lies in [low, high], or in [low, high) if `open_end`."""
    for name in names.split():
        value = getattr(settings, name)
        valid = low <= value < high if open_end or high == INFINITY else low <= value <= high
        bounds = f"at least {low:g}" if high == INFINITY else f"in [{low:g}, {high:g}{')' if open_end else ']'}"
        _require(valid, f"{type(settings).__name__}.{name} is {value}", bounds)


@dataclass(frozen=True)
class GNMTConfig:
    """The network. The defaults are the paper's size; `configs/` has smaller ones.

    Attributes:
        vocab_size: pieces in the shared vocabulary, special ones included.
        hidden_size: width of embeddings, LSTM layers and attention (paper: 1024).
        num_encoder_layers: layers in the encoder (paper: 8).
        num_decoder_layers: layers in the decoder (paper: 8); the bottom one's output is the attention query.
        num_bidirectional_layers: lowest encoder layers that read in both directions, giving 2 * hidden_size (paper: 1).
        first_residual_layer: first layer, counted from 1, with a shortcut around it (paper: 3); a layer whose output
            width differs from its input width gets a learned linear projection as its shortcut.
        layer_norm: whether each layer's output (after the shortcut's sum) is normalised over its features.
        dropout: probability of dropping a feature of a layer's input, of the context and of the last hidden layer.
            The mask is drawn once a sentence and held over time (Gal and Ghahramani 2016, arXiv 1512.05287).
        tie_embeddings: whether the softmax uses the target embedding as its weight (Press and Wolf 2017).
        init_range: weights start uniform in [-init_range, init_range] (public GNMT code: 0.04 at width 1024).
    """

    vocab_size: int = 32000
    hidden_size: int = 1024
    num_encoder_layers: int = 8
    num_decoder_layers: int = 8
    num_bidirectional_layers: int = 1
    first_residual_layer: int = 3
    layer_norm: bool = True
    dropout: float = 0.2
    tie_embeddings: bool = True
    init_range: float = 0.04

    def __post_init__(self) -> None:
        _require_range(self, "vocab_size", 5, INFINITY)
        _require_range(self, "hidden_size num_encoder_layers num_decoder_layers first_residual_layer", 1, INFINITY)
        _require_range(self, "num_bidirectional_layers", 0, self.num_encoder_layers)
        _require_range(self, "dropout", 0, 1, open_end=True)
        _require_range(self, "init_range", 0, 1)


@dataclass(frozen=True)
class SearchConfig:
    """Beam search (paper section 7).

    Attributes:
        beam_size: unfinished hypotheses kept for each sentence; 1 is greedy search.
        num_hypotheses: finished hypotheses returned for each sentence, at most beam_size.
        length_penalty: alpha of lp(Y) = ((5 + |Y|) / 6)^alpha; |Y| counts the end-of-sentence token.
        coverage_penalty: beta of cp(X; Y) = beta * sum_i log(min(sum_j p_ij, 1)).
        max_length_factor: a hypothesis ends at max_length_factor * (source tokens) + 10 tokens.
    """

    beam_size: int = 5
    num_hypotheses: int = 1
    length_penalty: float = 0.6
    coverage_penalty: float = 0.0
    max_length_factor: float = 2.0

    def __post_init__(self) -> None:
        _require_range(self, "beam_size num_hypotheses", 1, INFINITY)
        _require(
            self.num_hypotheses <= self.beam_size,
            f"n-best {self.num_hypotheses} with beam size {self.beam_size}",
            "n-best to be at most the beam size: lower --n-best or raise --beam-size",
        )
        _require_range(self, "length_penalty coverage_penalty", 0, INFINITY)
        _require_range(self, "max_length_factor", 0.1, 100)


@dataclass(frozen=True)
class CorpusConfig:
    """Where sentence pairs come from.

    Attributes:
        path: one of: aligned text files, with `{lang}` standing for the language (`train.{lang}`); a `.tsv`, `.jsonl`
            or `.parquet` file; the id of a Hugging Face hub data set (`owner/name`). Text files may end in `.gz`.
        target_path: the target side's text file, if its name differs in more than the language.
        hub_config: the hub data set's configuration, such as `de-en`.
        split: the hub data set's split, such as `train` or `validation`.
        revision: commit or tag of the hub data set, so that a run can be repeated.
        source_column: column (or key) of the source; the default is the language, also inside a `translation` column.
            A TSV file without column names has its source in the first column.
        target_column: the same for the target; in a TSV file without column names the second column.
    """

    path: str
    target_path: str | None = None
    hub_config: str | None = None
    split: str | None = None
    revision: str | None = None
    source_column: str | None = None
    target_column: str | None = None

    def __post_init__(self) -> None:
        _require(bool(self.path.strip()), "an empty corpus path", "a file name or a hub id")
        is_text = "{lang}" in self.path or self.target_path is not None
        is_local = is_text or self.path.removesuffix(".gz").endswith((".tsv", ".jsonl", ".json", ".parquet"))
        hub_only = [name for name in ("hub_config", "split", "revision") if getattr(self, name) is not None]
        _require(
            not (is_local and hub_only),
            f"{', '.join(hub_only)} for the file {self.path}",
            "them for hub data sets only",
        )
        _require(not (is_text and self.source_column), f"columns for the text file {self.path}", "them for tables only")
        _require(
            (self.source_column is None) == (self.target_column is None),
            f"source_column {self.source_column!r} and target_column {self.target_column!r}",
            "both or neither",
        )


@dataclass(frozen=True)
class TokenizerConfig:
    """The shared SentencePiece vocabulary; its size is `GNMTConfig.vocab_size`.

    Attributes:
        path: a ready tokenizer (`tokenizer.model`), instead of training one.
        model_type: `unigram` (Kudo 2018) or `bpe` (Sennrich et al. 2016).
        max_sentences: sentences, drawn evenly from both sides, that the vocabulary is trained on.
    """

    path: str | None = None
    model_type: str = "unigram"
    max_sentences: int = 2_000_000

    def __post_init__(self) -> None:
        _require(self.model_type in ("unigram", "bpe"), f"model_type {self.model_type!r}", "'unigram' or 'bpe'")
        _require_range(self, "max_sentences", 1, INFINITY)


@dataclass(frozen=True)
class BatchConfig:
    """How examples become batches.

    Attributes:
        tokens_per_batch: padded tokens of a training batch: sentences * (longest source + longest target) / 2.
        max_length: training pairs with more tokens than this on a side are dropped (and counted).
        max_length_ratio: training pairs whose sides differ by more than this factor (and 10 tokens) are dropped.
    """

    tokens_per_batch: int = 4096
    max_length: int = 150
    max_length_ratio: float = 5.0

    def __post_init__(self) -> None:
        _require_range(self, "max_length", 2, INFINITY)
        _require_range(self, "max_length_ratio", 1, INFINITY)
        _require(
            self.tokens_per_batch >= self.max_length,
            f"tokens_per_batch {self.tokens_per_batch} with max_length {self.max_length}",
            "a batch that holds at least one sentence of the greatest length",
        )


@dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with a linear warm-up, then a cosine decay to the end of training.

    Attributes:
        learning_rate: peak rate.
        warmup_steps: updates from rate 0 to the peak; at most half of all updates are used for it.
        final_rate: rate at the last update, as a share of the peak.
        betas: decay of the running means of gradient and squared gradient.
        weight_decay: decoupled decay per update, times the rate; matrices only.
    """

    learning_rate: float = 1.5e-3
    warmup_steps: int = 400
    final_rate: float = 0.02
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        _require_range(self, "learning_rate weight_decay warmup_steps", 0, INFINITY)
        _require_range(self, "final_rate", 0, 1)
        _require(all(0 <= beta < 1 for beta in self.betas), f"betas {self.betas}", "two numbers in [0, 1)")
