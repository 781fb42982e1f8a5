"""How a gradient fares on its way down a stack and back in time. Shapes: see `gnmt.nn`."""

from typing import Any, cast

import torch
from torch import Tensor

from gnmt.data.padding import Batch
from gnmt.nn.gnmt import GNMT
from gnmt.nn.loss import LossSums, cross_entropy
from gnmt.nn.lstm import ResidualLayer

# Time steps over which the decay across time is followed.
_LAGS = 12


def loss_sums(network: GNMT, batch: Batch) -> LossSums:
    """Cross-entropy of a batch, without smoothing."""
    logits = network(batch.source, batch.source_lengths, batch.target_input, batch.target_mask)
    return cross_entropy(logits, batch.target_output[batch.target_mask], 0.0)


def probe_layers(network: GNMT, batch: Batch) -> dict[str, list[float]]:
    """Follow one batch through all layers and its gradient back.

    Returns:
        for each side, lowest layer first: `<side>_gradient`, the norm of the loss' gradient (nats per token) for the
        layer's outputs; `<side>_spread`, the standard deviation of these outputs over valid positions and features.
    """
    outputs: dict[str, list[Tensor]] = {"encoder": [], "decoder": []}

    def keep(side: str) -> Any:
        def hook(module: Any, inputs: Any, output: Tensor) -> None:
            output.retain_grad()
            outputs[side].append(output)

        return hook

    stacks = {"encoder": network.encoder.layers, "decoder": network.decoder.layers}
    handles = [layer.register_forward_hook(keep(side)) for side, stack in stacks.items() for layer in stack]
    sums = loss_sums(network, batch)
    (sums.smoothed / sums.tokens).backward()
    for handle in handles:
        handle.remove()
    network.zero_grad()
    source_mask = torch.arange(len(batch.source))[:, None] < batch.source_lengths
    masks = {"encoder": source_mask, "decoder": batch.target_mask}
    found = {}
    for side, layers in outputs.items():
        found[f"{side}_gradient"] = [_norm(h.grad) for h in layers]
        found[f"{side}_spread"] = [float(h.detach()[masks[side]].std()) for h in layers]
    return found


def probe_independence(network: GNMT, batch: Batch) -> float:
    """Largest difference of encoder outputs (valid positions) between a batch while training and each row at inference.

    The network has no dropout; what remains is rounding, unless something reads the batch.
    """
    with torch.no_grad():
        together = network.train().encode(batch.source, batch.source_lengths).values
        network.eval()
        worst = 0.0
        for row, length in enumerate(batch.source_lengths.tolist()):
            alone = network.encode(batch.source[:length, row : row + 1], batch.source_lengths[row : row + 1]).values
            worst = max(worst, float((alone[0] - together[row, :length]).abs().max()))
    network.train()
    return worst


def _norm(gradient: Tensor | None) -> float:
    return 0.0 if gradient is None else float(gradient.norm())


def probe_time(network: GNMT, batch: Batch) -> list[float]:
    """Norms of the gradient of the lowest encoder layer's last output for its input k steps back, k = 0, 1, ...

    The gradient of the output's projection on one random direction; rows are cut to the shortest of the batch.
    """
    steps = min(_LAGS, int(batch.source_lengths.min()))
    embedded = network.source_embedding(batch.source[:steps]).detach() * network.embedding_scale
    embedded.requires_grad_()
    layer = cast("ResidualLayer", network.encoder.layers[0])
    last = layer.rnn(embedded)[-1]
    direction = torch.randn(last.shape[-1], generator=torch.Generator().manual_seed(0)).to(last.dtype)
    (gradient,) = torch.autograd.grad((last @ direction).sum(), embedded)
    return [float(step.norm()) for step in gradient.flip(0)]
