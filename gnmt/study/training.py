"""One training of the study, from fresh weights to its record."""

import itertools
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

# Updates between two measurements of the gradient, and parts of a training whose mean loss is kept.
_GRADIENTS_EVERY, _PARTS = 10, 10


def train(run: Run, config: StudyConfig, corpus: Corpus) -> dict[str, Any]:
    """Train one stack.

    Returns:
        plain values: `validation_loss` (nats per token; that of a uniform guess if the training `diverged`: left the
        finite numbers or ended worse than guessing), `training_losses` (means over each tenth of the updates),
        `clipped_share`, and `gradients`: means over updates of log gradient norms of each layer's parameters, at the
        start and over the second half; of final trainings also what `probe` finds at the `start` and the `end`.
    """
    torch.manual_seed(run.seed)
    network = GNMT(run.stack.network(config.vocab_size))
    trainer = _Trainer(run, network)
    is_final = run.stage == "final"
    record: dict[str, Any] = {"start": probe(network, corpus)} if is_final else {}
    is_finite = all(trainer.update(batch) for batch in itertools.islice(corpus.training(run.seed), run.updates))
    uniform = math.log(config.vocab_size)
    loss = validate(network, corpus.validation) if is_finite else math.inf
    diverged = not loss < uniform
    if is_final and not diverged:
        record["end"] = probe(network, corpus)
    return record | {
        "validation_loss": uniform if diverged else loss,
        "training_losses": trainer.loss_means(),
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
        self._losses: list[float] = []
        self.updates = self.clipped = 0

    def update(self, batch: Batch) -> bool:
        """One update; False, and no update, if loss or gradient are not finite."""
        sums = loss_sums(self._network, batch)
        (sums.smoothed / sums.tokens).backward()
        limit = self._run.clip_norm or math.inf
        parameters = list(self._network.parameters())
        total_norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        norm = float(total_norm)
        if not math.isfinite(norm):
            return False
        if self.updates % _GRADIENTS_EVERY == 0:
            self._watch()
        torch.nn.utils.clip_grads_with_norm_(parameters, limit, total_norm)
        self._losses.append(float(sums.nats) / sums.tokens)
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

    def loss_means(self) -> list[float]:
        """Mean training loss over each tenth of the updates that were made."""
        bounds = [self.updates * part // _PARTS for part in range(_PARTS + 1)]
        return [sum(self._losses[a:b]) / (b - a) for a, b in itertools.pairwise(bounds) if b > a]

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


def probe(network: GNMT, corpus: Corpus) -> dict[str, list[float]]:
    """What both probes find on the corpus' probe batch."""
    batch = corpus.probe_batch
    return {**probe_layers(network, batch), "time_gradient": probe_time(network, batch)}
