"""The networks that the tests of the whole go through, and a ragged batch of three sentence pairs for them."""

import itertools

import torch

from gnmt.config import GNMTConfig
from gnmt.data.padding import collate
from gnmt.nn.gnmt import GNMT
from gnmt.tokenizer import Tokenizer

SOURCES = [[5, 6, 7, 8], [9], [10, 11]]
TARGETS = [[20], [21, 22, 23], [24, 20]]

CELLS = ("lstm", "gru", "rnn")
WIRINGS = ("parallel", "gnmt_v2", "gnmt")
ATTENTIONS = ("additive", "dot")

_BASE = {
    "vocab_size": 30,
    "hidden_size": 8,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "first_residual_layer": 2,
    "init_range": 0.4,
}
_THREE_LAYERS = {"num_encoder_layers": 3, "num_decoder_layers": 3}
_UNEQUAL = {
    **_THREE_LAYERS,
    "encoder_layer_sizes": (4, 6, 6),
    "decoder_layer_sizes": (6, 6, 8),
    "first_residual_layer": 1,
}
_UNEQUAL_PAIR = {"encoder_layer_sizes": (4, 6), "decoder_layer_sizes": (6, 8), "first_residual_layer": 1}
_ONE_LAYER = {"num_decoder_layers": 1}

VARIANTS = {
    **{
        f"{cell}-{wiring}-{attention}": {"cell": cell, "wiring": wiring, "attention": attention}
        for cell, wiring, attention in itertools.product(CELLS, WIRINGS, ATTENTIONS)
    },
    "unequal-project": {**_UNEQUAL, "shortcut": "project"},
    "unequal-add": {**_UNEQUAL, "shortcut": "add"},
    "unequal-project-gnmt-dot": {**_UNEQUAL_PAIR, "shortcut": "project", "wiring": "gnmt", "attention": "dot"},
    "unequal-add-gnmt_v2-gru": {**_UNEQUAL_PAIR, "shortcut": "add", "wiring": "gnmt_v2", "cell": "gru"},
    "unequal-untied-top": {**_UNEQUAL, "decoder_layer_sizes": (5, 8, 7), "tie_embeddings": False},
    "no-shortcut": {"shortcut": "none"},
    "unidirectional": {"num_bidirectional_layers": 0},
    "all-bidirectional": {"num_bidirectional_layers": 2, "first_residual_layer": 1},
    "all-bidirectional-halves-add": {
        "num_bidirectional_layers": 2,
        "encoder_layer_sizes": (4, 4),
        "shortcut": "add",
        "first_residual_layer": 1,
    },
    "no-norm": {**_THREE_LAYERS, "layer_norm": False},
    "no-norm-gnmt": {"layer_norm": False, "wiring": "gnmt", "attention": "dot"},
    "residual-from-1": {"first_residual_layer": 1, "wiring": "gnmt_v2"},
    "residual-from-1-gnmt": {"first_residual_layer": 1, "wiring": "gnmt"},
    "residual-from-3": {**_THREE_LAYERS, "first_residual_layer": 3},
    "unshared": {"share_embeddings": False},
    "untied": {"tie_embeddings": False},
    "unshared-untied": {"share_embeddings": False, "tie_embeddings": False},
    **{f"one-layer-{wiring}": {**_ONE_LAYER, "wiring": wiring} for wiring in WIRINGS},
    "one-layer-gnmt-dot-residual": {**_ONE_LAYER, "wiring": "gnmt", "attention": "dot", "first_residual_layer": 1},
    "one-layer-narrow-untied": {
        **_ONE_LAYER,
        "decoder_layer_sizes": (5,),
        "tie_embeddings": False,
        "wiring": "gnmt_v2",
        "first_residual_layer": 1,
    },
    "one-layer-each-side": {**_ONE_LAYER, "num_encoder_layers": 1, "cell": "gru"},
    "a-head-for-each-feature": {"attention": "dot", "num_heads": 8},
    "8+8": {"num_encoder_layers": 8, "num_decoder_layers": 8, "first_residual_layer": 3},
}


def config_of(variant, **settings):
    chosen = {**_BASE, **VARIANTS[variant], **settings}
    heads = {"num_heads": 2} if chosen.get("attention") == "dot" else {}
    return GNMTConfig(**{**heads, **chosen})


def build(variant, **settings):
    """A network in float64 for evaluation; no gain is 1 in it and no bias 0."""
    network = GNMT(config_of(variant, **settings)).double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return network


def logits_of(network, batch):
    return network(batch.source, batch.source_lengths, batch.target_input, batch.target_mask)


def teacher_forcing(network, sources, targets):
    """Log-probabilities of each pair's target positions: a list of (T_b, V)."""
    batch = collate(sources, targets)
    logits = logits_of(network, batch)
    grid = logits.new_zeros(*batch.target_mask.shape, logits.shape[-1])
    grid[batch.target_mask] = logits.log_softmax(-1)
    return [grid[: len(target) + 1, b] for b, target in enumerate(targets)]


def tokens_of(source, target):
    """What the network reads of one pair: the source closed by eos and the target behind bos."""
    return [*source, Tokenizer.eos_id], [Tokenizer.bos_id, *target]
