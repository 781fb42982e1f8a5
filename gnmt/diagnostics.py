"""Gradient flow by layers: which parameters belong to which layer, norms of what they hold, and their picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from gnmt.files import new_file
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
    tensors = [tensor.detach() for group in groups.values() for tensor in group]
    squares = torch.stack([torch.linalg.vector_norm(tensor) for tensor in tensors]).cpu().double().square()
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


def plot_gradient_flow(history: Sequence[Mapping[str, float]], path: Path) -> None:
    """Draw gradient norms and update-to-weight ratios of all layers over a training, as a PNG.

    Args:
        history: one mapping for each measured step, with `step`, `clipped_share`, `grad_norm/<layer>` and
            `update_ratio/<layer>`.
        path: of the picture; it appears only when it is whole.
    """
    import matplotlib.figure

    figure = matplotlib.figure.Figure(figsize=(12, 9), layout="constrained")
    axes = figure.subplots(3, 2)
    steps = [row["step"] for row in history]
    for column, side in enumerate(SIDES):
        names = [name for name in history[-1] if name.startswith(f"grad_norm/{side}_")]
        for row, quantity in enumerate(("grad_norm", "update_ratio")):
            axis = axes[row, column]
            for number, name in enumerate(names, start=1):
                values = [entry[name.replace("grad_norm", quantity)] for entry in history]
                color = matplotlib.colormaps["viridis"](number / len(names))
                axis.plot(steps, values, color=color, label=f"layer {number}")
            axis.set(title=f"{side}: {quantity.replace('_', ' ')}", yscale="log", xlabel="update")
        axes[0, column].legend(fontsize="x-small", ncols=2)
    for name in ("encoder", "decoder", "attention", "embedding", "output"):
        axes[2, 0].plot(steps, [row[f"grad_norm/{name}"] for row in history], label=name)
    axes[2, 0].set(title="gradient norm by part", yscale="log", xlabel="update")
    axes[2, 0].legend(fontsize="x-small")
    axes[2, 1].plot(steps, [row["clipped_share"] for row in history])
    axes[2, 1].set(title="share of clipped updates", ylim=(-0.05, 1.05), xlabel="update")
    with new_file(path) as partial:
        figure.savefig(partial, format="png", dpi=100)
