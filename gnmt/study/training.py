"""One training of the study, from fresh weights to its record."""

import math
from typing import Any

import torch

from gnmt.config import OptimizerConfig
from gnmt.data.padding import Batch
from gnmt.diagnostics import gradients, layer_parameters, norms
from gnmt.nn.gnmt import GNMT
from gnmt.optim import build_optimizer
from gnmt.study.corpus import Corpus
from gnmt.study.probe import loss_sums, probe_layers, probe_time
from gnmt.study.settings import Run, StudyConfig

# Validations of a final training, evenly spaced; updates between two measurements of the gradient.
_VALIDATIONS, _GRADIENTS_EVERY = 4, 10


def train(run: Run, config: StudyConfig, corpus: Corpus) -> dict[str, Any]:
    """Train one stack.

    Returns:
        plain values: `validation_loss` (nats per token; that of a uniform guess if training left the finite
        numbers), `validation_losses` by update, `diverged`, `clipped_share`, and `gradients`: means over updates of
        log gradient norms of each layer's parameters, at the start and over the second half; of final trainings also
        what `probe` finds at the start and the end.
    """
    torch.manual_seed(run.seed)
    network = GNMT(run.stack.network(config.vocab_size))
    trainer = _Trainer(run, network)
    is_final = run.stage == "final"
    record: dict[str, Any] = {}
    if is_final:
        record["start"] = _probe(network, corpus)
    losses = {}
    checks = _VALIDATIONS if is_final else 1
    validated = {run.updates * part // checks for part in range(1, checks + 1)}
    for update, batch in zip(range(1, run.updates + 1), corpus.training(run.seed), strict=False):
        if not trainer.update(batch):
            break
        if update in validated:
            losses[update] = validate(network, corpus.validation)
    uniform = math.log(config.vocab_size)
    last = next(reversed(losses.values()), math.nan)
    diverged = not math.isfinite(last) or run.updates not in losses
    if is_final and not diverged:
        record["end"] = _probe(network, corpus)
    return record | {
        "validation_loss": uniform if diverged else last,
        "validation_losses": losses,
        "diverged": diverged,
        "clipped_share": trainer.clipped / max(1, trainer.updates),
        "gradients": trainer.gradient_means(),
    }


class _Trainer:
    """Updates of one network, with its gradients watched."""

    def __init__(self, run: Run, network: GNMT) -> None:
        self._run, self._network = run, network
        config = OptimizerConfig(run.learning_rate, warmup_steps=run.updates // 10)
        self._optimizer, self._schedule = build_optimizer(network, config, run.updates)
        self._layers = layer_parameters(network)
        self._logs: dict[str, list[dict[str, float]]] = {"start": [], "later": []}
        self.updates = self.clipped = 0

    def update(self, batch: Batch) -> bool:
        """One update; False, and no update, if loss or gradient are not finite."""
        sums = loss_sums(self._network, batch)
        (sums.smoothed / sums.tokens).backward()
        limit = self._run.clip_norm or math.inf
        if self.updates % _GRADIENTS_EVERY == 0:
            self._watch()
        norm = float(torch.nn.utils.clip_grad_norm_(self._network.parameters(), limit))
        if not math.isfinite(norm):
            return False
        self._optimizer.step()
        self._schedule.step()
        self._optimizer.zero_grad()
        self.updates += 1
        self.clipped += norm > limit
        return True

    def _watch(self) -> None:
        found = {name: math.log(max(norm, 1e-38)) for name, norm in norms(gradients(self._layers)).items()}
        if self.updates == 0:
            self._logs["start"].append(found)
        elif self.updates >= self._run.updates // 2:
            self._logs["later"].append(found)

    def gradient_means(self) -> dict[str, dict[str, float]]:
        """Mean log norms of each layer's gradient, at the start and later."""
        return {
            when: {name: sum(log[name] for log in logs) / len(logs) for name in logs[0]}
            for when, logs in self._logs.items()
            if logs
        }


def validate(network: GNMT, batches: list[Batch]) -> float:
    """Mean cross-entropy in nats per token."""
    network.eval()
    with torch.no_grad():
        sums = [loss_sums(network, batch) for batch in batches]
    network.train()
    return float(sum(float(part.nats) for part in sums)) / sum(part.tokens for part in sums)


def _probe(network: GNMT, corpus: Corpus) -> dict[str, list[float]]:
    longest = max(corpus.validation, key=lambda batch: int(batch.source_lengths.min()))
    return {**probe_layers(network, longest), "time_gradient": probe_time(network, longest)}
