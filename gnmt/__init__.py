"""A GNMT translator: deep residual LSTM stacks with attention, trained with Lightning, decoded with beam search."""

from gnmt.config import GNMTConfig, SearchConfig
from gnmt.errors import GNMTError
from gnmt.nn.gnmt import GNMT
from gnmt.search.beam import beam_search
from gnmt.search.hypotheses import Hypothesis
from gnmt.tokenizer import Tokenizer
from gnmt.translator import Translator
from gnmt.version import __version__

__all__ = [
    "GNMT",
    "GNMTConfig",
    "GNMTError",
    "Hypothesis",
    "SearchConfig",
    "Tokenizer",
    "Translator",
    "__version__",
    "beam_search",
]
