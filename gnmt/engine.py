"""Ids in, hypotheses of ids out: batches that are filled up again as their sentences are done."""

from collections import deque

import torch

from gnmt.config import SearchConfig
from gnmt.data.padding import pad_sources
from gnmt.errors import is_out_of_memory
from gnmt.search.batch import Search
from gnmt.search.constraints import Constraints
from gnmt.search.hypotheses import Hypothesis, Request
from gnmt.search.model import SearchModel
from gnmt.tokenizer import Tokenizer

# By key: ids without special tokens, at least one, and the demands on their translation.
Sources = dict[int, tuple[list[int], Constraints]]
# The share of a batch that may be done before new sentences take the places.
_DONE_SHARE = 1 / 8
# Sentences shorter than width / _WIDEST - _WIDER / _WIDEST tokens do not join a batch of that width.
_WIDEST, _WIDER = 2, 16


class Engine:
    """Runs a search over any number of sources in batches of limited size.

    Args:
        model: what is searched.
        device: where its inputs go.
        batch_size: limit of a batch, in sentences or in padded source tokens.
        batch_type: what `batch_size` counts, `sents` or `tokens`.
        keep_attention: whether hypotheses carry their attention.
    """

    def __init__(
        self, model: SearchModel, device: torch.device, batch_size: int, batch_type: str, keep_attention: bool
    ) -> None:
        self._model, self._device = model, device
        self._batch_size, self._batch_type = batch_size, batch_type
        self._keep_attention = keep_attention

    def run(self, sources: Sources, config: SearchConfig) -> dict[int, list[Hypothesis]]:
        """Search for all sources; done sentences leave the batch, and waiting ones take their places.

        Raises:
            FloatingPointError: the model's log-probabilities are not numbers.
            MemoryError: there is not enough memory.
        """
        try:
            return self._run(sources, config)
        except RuntimeError as error:
            raise _explained(error) from None

    def _run(self, sources: Sources, config: SearchConfig) -> dict[int, list[Hypothesis]]:
        # Longest first, so that a batch that is too large fails at once.
        waiting = deque(sorted(sources, key=lambda key: -len(sources[key][0])))
        results: dict[int, list[Hypothesis]] = {}
        search = Search(
            self._model,
            config,
            bos_id=Tokenizer.bos_id,
            eos_id=Tokenizer.eos_id,
            keep_attention=self._keep_attention,
        )
        while waiting or search.num_active:
            if search.num_done >= _DONE_SHARE * (search.num_done + search.num_active):
                search.drop_done()
                if batch := self._next_batch(waiting, sources, search):
                    source, lengths = pad_sources([sources[key][0] for key in batch])
                    memory = self._model.encode(source.to(self._device), lengths.to(self._device))
                    search.admit(memory, [Request(key, sources[key][1]) for key in batch])
            results.update(search.advance())
        return results

    def _next_batch(self, waiting: deque[int], sources: Sources, search: Search) -> list[int]:
        """Take from the waiting sentences as many as fit beside those in search.

        None joins a batch that is much wider than it needs: it would be padded to that width.
        """
        batch: list[int] = []
        while waiting:
            length = len(sources[waiting[0]][0]) + 1
            width = max(search.width, len(sources[batch[0]][0]) + 1 if batch else length)
            rows = search.num_active + len(batch)
            cost = (rows + 1) * (width if self._batch_type == "tokens" else 1)
            if rows and (cost > self._batch_size or width > _WIDEST * length + _WIDER):
                break
            batch.append(waiting.popleft())
        return batch


def _explained(error: RuntimeError) -> Exception:
    """A lack of memory as what it is, whichever device it comes from; other errors as they are."""
    if is_out_of_memory(error):
        return MemoryError("there is not enough memory for this batch size and these lines; lower --batch-size")
    return error
