"""Optimizer and learning-rate schedule."""

import math

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from gnmt.config import OptimizerConfig


def learning_rate_factor(step: int, total_steps: int, config: OptimizerConfig) -> float:
    """Share of the peak rate at update `step` (from 0): linear warm-up, then half a cosine down to `final_rate`."""
    warmup_steps = min(config.warmup_steps, total_steps // 2)
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - 1 - warmup_steps))
    return config.final_rate + (1 - config.final_rate) * 0.5 * (1 + math.cos(math.pi * progress))


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, total_steps: int, *, fused: bool = True
) -> tuple[Optimizer, LambdaLR]:
    """AdamW and its schedule over `total_steps` updates; vectors (biases, gains) are not decayed.

    The fused kernel takes a tenth of the time, but unscales float16 gradients itself, after they have been clipped.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=fused)
    return optimizer, LambdaLR(optimizer, lambda step: learning_rate_factor(step, total_steps, config))
