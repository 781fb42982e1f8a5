"""Which dropout earns its place: validation loss of small runs on few pairs, where a network without any overfits.

`python benchmarks/dropout.py FOLDER` trains 2 + 2 layers of width 128 on the first 4,000 pairs of the default corpus
with `train.py`, once for each kind and seed, into FOLDER, and prints a Markdown table of the lowest validation losses.
"""

import argparse
import csv
import itertools
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT / "data" / "home_assistant" / "en-de"
PAIRS, SEEDS = 4000, (1, 2)
KINDS = {
    "none": "--model.network.dropout 0",
    "0.3, drawn at each step": "--model.network.dropout 0.3 --model.network.hold_dropout_masks false",
    "0.3, held over time": "--model.network.dropout 0.3",
}
COMMON = (
    "--model.network.hidden_size 128 --model.network.num_encoder_layers 2 --model.network.num_decoder_layers 2 "
    "--model.network.vocab_size 2000 --model.optimizer.learning_rate 4e-3 --model.optimizer.warmup_steps 100 "
    "--model.num_samples 0 --data.test null --trainer.max_epochs 15 --early_stopping.monitor val/loss "
    "--early_stopping.mode min --early_stopping.patience 20 --trainer.precision 32-true"
)


def lowest_loss(kind: str, seed: int, folder: Path) -> float:
    """Train, unless it is done, and read the lowest validation loss."""
    run = folder / f"{list(KINDS).index(kind)}-{seed}"
    if not (run / "model").exists():
        paths = [f"--data.{name}.path={file}" for name, file in corpora(folder).items()]
        options = [*COMMON.split(), *KINDS[kind].split(), *paths, f"--seed_everything={seed}"]
        command = [sys.executable, ROOT / "train.py", *options, f"--trainer.default_root_dir={run}"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    with (run / "metrics.csv").open(newline="") as file:
        return min(float(row["val/loss"]) for row in csv.DictReader(file) if row["val/loss"])


def corpora(folder: Path) -> dict[str, str]:
    """The small training corpus, written at the first call, and the whole validation corpus."""
    for language in ("en", "de"):
        with (CORPUS / f"train.{language}").open(encoding="utf-8", newline="\n") as lines:
            text = "".join(itertools.islice(lines, PAIRS))
        (folder / f"train.{language}").write_text(text, encoding="utf-8", newline="\n")
    return {"train": f"{folder}/train.{{lang}}", "validation": f"{CORPUS}/validation.{{lang}}"}


def main() -> None:
    """Print the table, a row as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    print("| dropout | lowest validation loss, nats per token | standard deviation over seeds |\n|---|---|---|")
    for kind in KINDS:
        losses = [lowest_loss(kind, seed, folder) for seed in SEEDS]
        print(f"| {kind} | {statistics.fmean(losses):.3f} | {statistics.stdev(losses):.3f} |", flush=True)


if __name__ == "__main__":
    main()
