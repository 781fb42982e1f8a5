"""Settings as frozen dataclasses, checked when they are made: one dataclass for each part of the system.

The same classes are the Python API, the sections of a YAML file and the command line's dotted options.
Sources: "paper" is Wu et al. 2016 (arXiv 1609.08144).
"""

from dataclasses import dataclass

from gnmt.checks import INFINITY, require, require_choice, require_range, require_types


@dataclass(frozen=True)
class GNMTConfig:
    """The network. The defaults are the paper's size; `configs/` has smaller ones.

    Attributes:
        vocab_size: pieces in the vocabulary that both sides share, special ones included.
        hidden_size: width of embeddings, attention and, unless said otherwise, recurrent layers (paper: 1024).
        num_encoder_layers: layers in the encoder (paper: 8).
        num_decoder_layers: layers in the decoder (paper: 8); the bottom one's output is the attention query.
        encoder_layer_sizes: width of each encoder layer, lowest first, of each direction if there are two; None for
            hidden_size everywhere.
        decoder_layer_sizes: the same for the decoder.
        num_bidirectional_layers: lowest encoder layers that read in both directions, giving twice their width
            (paper: 1); as many as the encoder has for an all-bidirectional one.
        cell: recurrent cell: `lstm`, `gru`, or `rnn` with tanh.
        shortcut: around a recurrent layer: `none`, `add` its input where widths are equal (paper), or `project`: where
            they differ, the input goes through a learned linear projection.
        first_residual_layer: first layer, counted from 1, with a shortcut around it (paper: 3).
        layer_norm: whether each layer's output, behind the shortcut's sum, is normalised over its features.
        wiring: of decoder and attention, see `gnmt.nn.decoder`: `parallel` (fast), `gnmt_v2` or `gnmt` (paper).
        attention: `additive` (paper) or `dot`, the scaled dot product with num_heads heads.
        num_heads: heads of `dot`, a divisor of hidden_size; for `additive` it stays 1.
        dropout: probability of dropping a feature of a layer's input, of the context and of the last hidden layer.
        hold_dropout_masks: whether a mask is drawn once a sentence and held over time (Gal and Ghahramani 2016,
            arXiv 1512.05287), or anew at each time step.
        share_embeddings: whether source and target have the same embedding.
        tie_embeddings: whether the softmax uses the target embedding as its weight (Press and Wolf 2017).
        init_range: weights start uniform in [-init_range, init_range] (paper: 0.04 at width 1024).
        forget_bias: added to the LSTM forget gates' biases at the start (paper: 0).
    """

    vocab_size: int = 32000
    hidden_size: int = 1024
    num_encoder_layers: int = 8
    num_decoder_layers: int = 8
    encoder_layer_sizes: tuple[int, ...] | None = None
    decoder_layer_sizes: tuple[int, ...] | None = None
    num_bidirectional_layers: int = 1
    cell: str = "lstm"
    shortcut: str = "project"
    first_residual_layer: int = 3
    layer_norm: bool = True
    wiring: str = "parallel"
    attention: str = "additive"
    num_heads: int = 1
    dropout: float = 0.2
    hold_dropout_masks: bool = True
    share_embeddings: bool = True
    tie_embeddings: bool = True
    init_range: float = 0.04
    forget_bias: float = 1.0

    def __post_init__(self) -> None:
        require_types(self)
        require_range(self, "vocab_size", 5, INFINITY)
        require_range(
            self, "hidden_size num_encoder_layers num_decoder_layers first_residual_layer num_heads", 1, INFINITY
        )
        require_range(self, "num_bidirectional_layers", 0, self.num_encoder_layers)
        require_range(self, "dropout", 0, 1, open_end=True)
        require(0 < self.init_range <= 1, f"GNMTConfig.init_range is {self.init_range}", "above 0, at most 1")
        require_range(self, "forget_bias", -10, 10)
        require_choice(self, "cell", ("lstm", "gru", "rnn"))
        require_choice(self, "shortcut", ("none", "add", "project"))
        require_choice(self, "wiring", ("parallel", "gnmt_v2", "gnmt"))
        require_choice(self, "attention", ("additive", "dot"))
        for side in ("encoder", "decoder"):
            self._check_layer_sizes(side)
        require(
            self.hidden_size % self.num_heads == 0,
            f"GNMTConfig.num_heads is {self.num_heads}",
            f"a divisor of hidden_size {self.hidden_size}",
        )
        require(
            self.attention == "dot" or self.num_heads == 1,
            f"GNMTConfig.num_heads is {self.num_heads} with attention {self.attention}",
            "attention dot for more than one head",
        )
        if self.tie_embeddings:
            require(
                self.decoder_sizes[-1] == self.hidden_size,
                f"a top decoder layer of width {self.decoder_sizes[-1]} with tie_embeddings",
                f"hidden_size {self.hidden_size}, or tie_embeddings false",
            )

    def _check_layer_sizes(self, side: str) -> None:
        name = f"{side}_layer_sizes"
        sizes = getattr(self, name)
        if sizes is None:
            return
        object.__setattr__(self, name, tuple(sizes))  # a list when it comes from JSON
        layers = getattr(self, f"num_{side}_layers")
        require(
            len(sizes) == layers and all(size >= 1 for size in sizes),
            f"GNMTConfig.{name} is {list(sizes)}",
            f"{layers} widths (num_{side}_layers), each at least 1",
        )

    @property
    def encoder_sizes(self) -> tuple[int, ...]:
        """Width of each encoder layer."""
        return self.encoder_layer_sizes or (self.hidden_size,) * self.num_encoder_layers

    @property
    def decoder_sizes(self) -> tuple[int, ...]:
        """Width of each decoder layer."""
        return self.decoder_layer_sizes or (self.hidden_size,) * self.num_decoder_layers


@dataclass(frozen=True)
class SearchConfig:
    """Beam search (paper section 7), or sampling.

    Attributes:
        beam_size: unfinished hypotheses kept for each sentence; 1 is greedy search. Samples drawn, when sampling.
        num_hypotheses: finished hypotheses wanted for each sentence, at most beam_size.
        length_penalty: alpha of lp(Y) = ((5 + |Y|) / 6)^alpha; |Y| counts the end-of-sentence token.
        coverage_penalty: beta of cp(X; Y) = beta * sum_i log(min(sum_j p_ij, 1)).
        max_length_factor: a hypothesis ends at max_length_factor * (source tokens) + 10 tokens.
        token_pruning: nats below a hypothesis' best next token at which tokens are no longer tried (paper: 3).
        hypothesis_pruning: score below the best finished hypothesis at which others are given up (paper: 3).
        stop_margin: a search also ends when all unfinished hypotheses, if they ended here, would score this much below
            the finished ones that are wanted; inf searches on as long as a better one is possible.
        no_repeat_ngram_size: no n-gram of this many tokens comes twice in a translation; 0 allows all.
        temperature: 0 for beam search; above 0 translations are drawn at random, the more evenly the higher it is.
        top_k: when sampling, draw among this many most probable tokens; 0 for all.
        top_p: when sampling, draw among the most probable tokens that have this probability together.
        seed: of sampling; a sentence's samples depend on it and on the sentence's number alone.
    """

    beam_size: int = 5
    num_hypotheses: int = 1
    length_penalty: float = 0.6
    coverage_penalty: float = 0.1
    max_length_factor: float = 2.0
    token_pruning: float = INFINITY
    hypothesis_pruning: float = INFINITY
    stop_margin: float = 1.5
    no_repeat_ngram_size: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        require_range(self, "beam_size num_hypotheses", 1, INFINITY)
        require(
            self.num_hypotheses <= self.beam_size,
            f"n-best {self.num_hypotheses} with beam size {self.beam_size}",
            "n-best to be at most the beam size: lower --n-best or raise --beam-size",
        )
        require_range(self, "length_penalty coverage_penalty", 0, 10)
        for name in ("token_pruning", "hypothesis_pruning", "stop_margin"):
            require(getattr(self, name) >= 0, f"SearchConfig.{name} is {getattr(self, name)}", "at least 0, or inf")
        require_range(self, "no_repeat_ngram_size temperature top_k", 0, INFINITY)
        require_range(self, "seed", 0, 2**63, open_end=True)
        require(
            not self.temperature or self.token_pruning == self.hypothesis_pruning == INFINITY,
            f"SearchConfig.temperature is {self.temperature} with pruning",
            "top_k and top_p to limit what is sampled",
        )
        require_range(self, "max_length_factor", 0.1, 100)
        require(0 < self.top_p <= 1, f"SearchConfig.top_p is {self.top_p}", "above 0, at most 1")
        require(
            bool(self.temperature) or (self.top_k == 0 and self.top_p == 1),
            f"SearchConfig.top_k {self.top_k} and top_p {self.top_p} with temperature 0",
            "a temperature above 0: they limit what is sampled",
        )


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
        require(bool(self.path.strip()), "an empty corpus path", "a file name or a hub id")
        is_text = "{lang}" in self.path or self.target_path is not None
        is_local = is_text or self.path.removesuffix(".gz").endswith((".tsv", ".jsonl", ".json", ".parquet"))
        hub_only = [name for name in ("hub_config", "split", "revision") if getattr(self, name) is not None]
        require(
            not (is_local and hub_only),
            f"{', '.join(hub_only)} for the file {self.path}",
            "them for hub data sets only",
        )
        require(not (is_text and self.source_column), f"columns for the text file {self.path}", "them for tables only")
        require(
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
        require_choice(self, "model_type", ("unigram", "bpe"))
        require_range(self, "max_sentences", 1, INFINITY)


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
        require_range(self, "max_length", 2, INFINITY)
        require_range(self, "max_length_ratio", 1, INFINITY)
        require(
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
        require_range(self, "learning_rate weight_decay warmup_steps", 0, INFINITY)
        require_range(self, "final_rate", 0, 1)
        require(all(0 <= beta < 1 for beta in self.betas), f"betas {self.betas}", "two numbers in [0, 1)")
