"""The study's pictures, one PNG each."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gnmt.files import new_file
from gnmt.study.analysis import Analysis
from gnmt.study.settings import VARIANTS

# One colour a variant in all pictures.
_COLORS = dict(zip(VARIANTS, ("tab:red", "tab:blue", "tab:green"), strict=True))


def write_plots(analysis: Analysis, folder: Path) -> list[str]:
    """Draw all pictures; return their file names."""
    drawings: dict[str, Callable[[Analysis, Axes, str], None]] = {
        "loss_by_depth.png": _loss_by_depth,
        "learning_curves.png": _learning_curves,
        "gradient_by_layer.png": _gradient_by_layer,
        "factor_by_depth.png": _factor_by_depth,
        "learning_rates.png": _learning_rates,
        "gradient_over_time.png": _gradient_over_time,
        "time.png": _time,
        "memory.png": _memory,
    }
    for name, draw in drawings.items():
        cells = analysis.config.cells
        figure = Figure(figsize=(5.5 * len(cells), 4.5), layout="constrained")
        for axis, cell in zip(figure.subplots(1, len(cells), squeeze=False)[0], cells, strict=True):
            draw(analysis, axis, cell)
            axis.set_title(f"{cell}: {axis.get_title()}")
            axis.legend(fontsize="small")
        with new_file(folder / name) as partial:
            figure.savefig(partial, format="png", dpi=90)
    return list(drawings)


def _loss_by_depth(analysis: Analysis, axis: Axes, cell: str) -> None:
    depths = analysis.config.depths
    for variant, color in _COLORS.items():
        losses = [analysis.loss(analysis.stack(cell, variant, depth)) for depth in depths]
        values, errors = [loss.value for loss in losses], [loss.error for loss in losses]
        axis.errorbar(depths, values, errors, color=color, label=variant, marker="o", capsize=3)
    axis.axhline(analysis.unigram_loss, color="grey", linewidth=0.5, label="token frequencies alone")
    axis.set(title="loss by depth", xlabel="layers on each side", ylabel="validation loss, nats per token")


def _gradient_by_layer(analysis: Analysis, axis: Axes, cell: str) -> None:
    depth = max(analysis.config.depths)
    for variant, color in _COLORS.items():
        for when, style in (("start", "-"), ("end", "--")):
            norms = analysis.layer_values(analysis.stack(cell, variant, depth), when, "encoder_gradient")
            if norms:
                relative = [norm / norms[-1] for norm in norms]
                axis.plot(range(1, depth + 1), relative, style, color=color, label=f"{variant}, {when}")
    axis.set(
        title=f"gradient of {depth} encoder layers",
        xlabel="layer",
        ylabel="norm for the layer's output, relative to the top",
        yscale="log",
    )


def _learning_curves(analysis: Analysis, axis: Axes, cell: str) -> None:
    depth, updates = analysis.config.side_depth, analysis.config.updates
    for variant, color in _COLORS.items():
        for record in analysis.finals(analysis.stack(cell, variant, depth)):
            losses = record["training_losses"]
            axis.plot([updates * (part + 0.5) / len(losses) for part in range(len(losses))], losses, color=color)
        axis.plot([], [], color=color, label=variant)
    axis.set(title=f"training of {depth} layers, each seed", xlabel="update", ylabel="training loss, nats per token")


def _factor_by_depth(analysis: Analysis, axis: Axes, cell: str) -> None:
    depths = [depth for depth in analysis.config.depths if depth > 1]
    for variant, color in _COLORS.items():
        for when, style in (("start", "-"), ("end", "--")):
            fits = {depth: analysis.gamma(analysis.stack(cell, variant, depth), when) for depth in depths}
            found = {depth: fit.factor for depth, fit in fits.items() if fit}
            axis.plot(list(found), list(found.values()), style, color=color, marker="o", label=f"{variant}, {when}")
    axis.axhline(1.0, color="grey", linewidth=0.5)
    axis.set(title="factor per layer", xlabel="layers on each side", ylabel="gradient norm below / above a layer")


def _learning_rates(analysis: Analysis, axis: Axes, cell: str) -> None:
    depth = analysis.config.side_depth
    for variant, color in _COLORS.items():
        trials = analysis.trials(analysis.stack(cell, variant, depth))
        axis.plot(list(trials), list(trials.values()), color=color, marker="o", label=variant)
    axis.set(
        title=f"trials of {depth} layers",
        xlabel="peak learning rate",
        ylabel="validation loss, nats per token",
        xscale="log",
    )


def _gradient_over_time(analysis: Analysis, axis: Axes, cell: str) -> None:
    stack = analysis.stack(cell, "plain", min(analysis.config.depths))
    for when, style in (("start", "-"), ("end", "--")):
        norms = analysis.layer_values(stack, when, "time_gradient")
        axis.plot([norm / norms[0] for norm in norms], style, color="tab:red", label=when)
    axis.set(title="gradient of the lowest layer", xlabel="time steps back", ylabel="norm, relative", yscale="log")


def _time(analysis: Analysis, axis: Axes, cell: str) -> None:
    _cost(analysis, axis, cell, "milliseconds")
    axis.set(title="time", ylabel="milliseconds an update")


def _memory(analysis: Analysis, axis: Axes, cell: str) -> None:
    _cost(analysis, axis, cell, "mebibytes")
    axis.set(title="memory", ylabel="MiB at the peak")


def _cost(analysis: Analysis, axis: Axes, cell: str, quantity: str) -> None:
    for variant, color in _COLORS.items():
        costs = {depth: analysis.cost(analysis.stack(cell, variant, depth)) for depth in analysis.config.depths}
        values = [cost[quantity] for cost in costs.values()]
        axis.plot(list(costs), values, color=color, marker="o", label=variant)
    axis.set(xlabel="layers on each side", ylim=(0, None))
