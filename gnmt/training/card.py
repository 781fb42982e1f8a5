"""The model card of an exported model."""

import datetime
from typing import Any

import torch

from gnmt.checkpoint import Model
from gnmt.metrics import Scores


def model_card(config: Any, model: Model, scores: Scores | None) -> str:
    """Say what a model is, what it was trained on, and how well it does, in Markdown.

    Args:
        config: the run's resolved configuration.
        model: what is exported.
        scores: on the test corpus, if there was one.
    """
    network = model.network.config
    parameters = sum(parameter.numel() for parameter in model.network.parameters()) / 1e6
    version = torch.__version__.partition("+")[0]
    if scores:
        results = (
            f"Test corpus `{config.data.test.path}`, detokenised, beam {config.model.test_search.beam_size}:\n\n"
            "| metric | score | signature |\n|---|---|---|\n"
            f"| BLEU | {scores.bleu:.2f} | `{scores.bleu_signature}` |\n"
            f"| chrF | {scores.chrf:.2f} | `{scores.chrf_signature}` |"
        )
    else:
        results = "Not scored: the run had no test corpus."
    return f"""# GNMT translator {model.source_lang} -> {model.target_lang}

A recurrent sequence-to-sequence model after Wu et al. 2016 (arXiv 1609.08144): {network.num_encoder_layers} encoder and
{network.num_decoder_layers} decoder layers (cell {network.cell}, shortcut {network.shortcut}) of width
{network.hidden_size}, {network.attention} attention, wiring {network.wiring}, {network.vocab_size} shared SentencePiece
pieces, {parameters:.1f} million parameters.

Trained on `{config.data.train.path}`, selected by `{config.early_stopping.monitor}` on
`{config.data.validation.path}`; exported {datetime.date.today().isoformat()} with torch {version}.

## Results

{results}

## Use

    python translate.py -m THIS_FOLDER < source.txt > target.txt

    from gnmt import Translator
    translator = Translator.from_pretrained("THIS_FOLDER")
    print(translator.translate_batch(["..."])[0].text)

It translates one sentence or short paragraph a line, of the kind that it was trained on; other text will be
translated badly. The licence of the training text applies to what is made of it.
"""
