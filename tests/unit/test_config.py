"""Every setting is checked when it is made, and every shipped configuration parses."""

import pytest
import yaml
from conftest import ROOT
from parse_only import ParseOnly

from gnmt.config import BatchConfig, CorpusConfig, GNMTConfig, OptimizerConfig, SearchConfig, TokenizerConfig
from gnmt.errors import ConfigError
from gnmt.optim import learning_rate_factor
from gnmt.training.cli import build


@pytest.mark.parametrize(
    ("cls", "settings", "message"),
    [
        (GNMTConfig, {"num_encoder_layers": 0}, "num_encoder_layers is 0, expected at least 1"),
        (GNMTConfig, {"dropout": 1.0}, r"dropout is 1.0, expected in \[0, 1\)"),
        (GNMTConfig, {"num_bidirectional_layers": 9}, r"num_bidirectional_layers is 9, expected in \[0, 8\]"),
        (GNMTConfig, {"init_range": 0}, "init_range is 0, expected above 0"),
        (GNMTConfig, {"hidden_size": "8"}, "hidden_size is '8', expected int"),
        (GNMTConfig, {"num_bidirectional_layers": 1.5}, "num_bidirectional_layers is 1.5, expected int"),
        (GNMTConfig, {"layer_norm": "no"}, "layer_norm is 'no', expected bool"),
        (GNMTConfig, {"decoder_layer_sizes": [1.5] * 8}, "expected a list of whole numbers"),
        (GNMTConfig, {"cell": "sru"}, "cell is 'sru', expected one of lstm, gru, rnn"),
        (GNMTConfig, {"shortcut": "highway"}, "expected one of none, add, project"),
        (GNMTConfig, {"wiring": "gnmt2"}, "expected one of parallel, gnmt_v2, gnmt"),
        (GNMTConfig, {"attention": "general"}, "expected one of additive, dot"),
        (GNMTConfig, {"attention": "dot", "num_heads": 3}, "num_heads is 3, expected a divisor of hidden_size 1024"),
        (GNMTConfig, {"num_heads": 4}, "num_heads is 4 with attention additive"),
        (GNMTConfig, {"encoder_layer_sizes": (64, 64)}, r"encoder_layer_sizes is \[64, 64\], expected 8 widths"),
        (GNMTConfig, {"decoder_layer_sizes": (64,) * 8}, "top decoder layer of width 64 with tie_embeddings"),
        (SearchConfig, {"beam_size": 2, "num_hypotheses": 5}, "n-best 5 with beam size 2"),
        (SearchConfig, {"length_penalty": -1}, "length_penalty"),
        (CorpusConfig, {"path": " "}, "empty corpus path"),
        (CorpusConfig, {"path": "x", "source_column": "a"}, "both or neither"),
        (TokenizerConfig, {"model_type": "word"}, "expected one of unigram, bpe"),
        (BatchConfig, {"tokens_per_batch": 10}, "tokens_per_batch 10 with max_length 150"),
        (OptimizerConfig, {"betas": (0.9, 1.0)}, "betas"),
        (OptimizerConfig, {"learning_rate": float("nan")}, "learning_rate is nan"),
    ],
)
def test_impossible_settings_are_refused(cls, settings, message):
    with pytest.raises(ConfigError, match=message):
        cls(**settings)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_configurations_parse_and_say_where_they_come_from(path):
    config = build(["--config", str(path)], ParseOnly).config
    assert config.trainer.default_root_dir == f"runs/{path.stem}"
    text = path.read_text()
    assert text.startswith("#")
    written = yaml.safe_load(text)
    assert written["model"]["network"]["num_encoder_layers"] == config.model.network.num_encoder_layers
    assert config.data.vocab_size == config.model.network.vocab_size


def test_learning_rate_rises_falls_and_suits_any_number_of_steps():
    config = OptimizerConfig(warmup_steps=10, final_rate=0.1)
    rates = [learning_rate_factor(step, 100, config) for step in range(100)]
    assert rates.index(max(rates)) == 10
    assert max(rates) == 1.0
    assert rates[-1] == pytest.approx(0.1)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    for total in (1, 2, 3):
        assert all(0 < learning_rate_factor(step, total, config) <= 1 for step in range(total + 2))
