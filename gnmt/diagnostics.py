"""Gradient flow by layers: which parameters belong to which layer, and norms of what they hold."""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from gnmt.nn.gnmt import GNMT

SIDES = ("encoder", "decoder")


def layer_parameters(network: GNMT) -> dict[str, list[nn.Parameter]]:
    """All parameters, each once, by layer: `encoder_1`, ..., `decoder_1`, ..., `attention`, `embedding`, `output`.

    Tied weights count as embeddings.
    """
    groups: dict[str, list[nn.Parameter]] = {}
    for side, stack in zip(SIDES, (network.encoder, network.decoder), strict=True):
        for number, layer in enumerate(cast("nn.ModuleList", stack.layers), start=1):
            groups[f"{side}_{number}"] = list(layer.parameters())
    groups["attention"] = list(network.decoder.attention.parameters())
    embeddings = nn.ModuleList([network.source_embedding, network.target_embedding])
    groups["embedding"] = list(embeddings.parameters())
    grouped = {id(parameter) for group in groups.values() for parameter in group}
    groups["output"] = [parameter for parameter in network.parameters() if id(parameter) not in grouped]
    return groups


def norms(groups: Mapping[str, Sequence[Tensor]]) -> dict[str, float]:
    """The Euclidean norm over all tensors of each group, with `encoder` and `decoder` over their layers together."""
    tensors = [tensor for group in groups.values() for tensor in group]
    squares = torch.stack(torch._foreach_norm(tensors)).double().square().cpu()
    parts = squares.split([len(group) for group in groups.values()])
    sums = {name: float(part.sum()) for name, part in zip(groups, parts, strict=True)}
    for side in SIDES:
        sums[side] = sum(value for name, value in sums.items() if name.startswith(f"{side}_"))
    return {name: value**0.5 for name, value in sums.items()}


def gradients(groups: Mapping[str, Sequence[nn.Parameter]]) -> dict[str, list[Tensor]]:
    """The gradients of each group's parameters; a parameter without one is left out."""
    return {
        name: [parameter.grad for parameter in group if parameter.grad is not None] for name, group in groups.items()
    }
