"""A model that is a hand-written table of probabilities, and exhaustive search over it."""

import itertools
import math
from typing import NamedTuple

import torch

from gnmt.search.beam import beam_search

BOS, EOS = 0, 1
SOURCE_LENGTH = 3


class Memory(NamedTuple):
    sentence: torch.Tensor
    mask: torch.Tensor

    def select(self, index):
        return Memory(self.sentence[index], self.mask[index])

    def append(self, other):
        return Memory(torch.cat([self.sentence, other.sentence]), torch.cat([self.mask, other.mask]))

    def narrow(self, size):
        return self


class State(NamedTuple):
    prefixes: list

    def select(self, index):
        return State([self.prefixes[i] for i in index.tolist()])

    def append(self, other):
        return State(self.prefixes + other.prefixes)


class TableModel:
    """Draws each next-token distribution and attention from a generator seeded by sentence and prefix."""

    def __init__(self, vocab_size, eos_bias=0.0):
        self.vocab_size, self.eos_bias = vocab_size, eos_bias

    def table(self, sentence, prefix):
        seed = hash((sentence, prefix)) % (1 << 31)
        generator = torch.Generator().manual_seed(seed)
        logits = 2.0 * torch.randn(self.vocab_size, generator=generator, dtype=torch.float64)
        logits[BOS] = -math.inf
        logits[EOS] += self.eos_bias
        attention = torch.rand(SOURCE_LENGTH, generator=generator, dtype=torch.float64).softmax(0)
        return logits.log_softmax(0), attention

    def encode(self, source, lengths):
        return Memory(source[0], torch.arange(source.shape[0]) < lengths[:, None])

    def start(self, memory, beam_size):
        return State([()] * (len(memory.mask) * beam_size))

    def step(self, tokens, state, memory):
        beam = tokens.shape[1]
        prefixes = [(*p, t) for p, t in zip(state.prefixes, tokens.flatten().tolist(), strict=True)]
        rows = [self.table(int(memory.sentence[i // beam]), p) for i, p in enumerate(prefixes)]
        log_probs, attention = (torch.stack(part).view(*tokens.shape, -1) for part in zip(*rows, strict=True))
        return log_probs, State(prefixes), attention


def exhaustive(model, sentence, config, limit):
    """All complete sequences of at most `limit` tokens, scored by the paper's formula: (score, log_prob, tokens)."""
    found = []
    ordinary = range(2, model.vocab_size)
    for size in range(limit):
        for tokens in itertools.product(ordinary, repeat=size):
            log_prob, coverage, prefix = 0.0, [0.0] * SOURCE_LENGTH, (BOS,)
            for token in (*tokens, EOS):
                log_probs, attention = model.table(sentence, prefix)
                log_prob += float(log_probs[token])
                coverage = [c + float(a) for c, a in zip(coverage, attention, strict=True)]
                prefix = (*prefix, token)
            score = log_prob / ((5 + size + 1) / 6) ** config.length_penalty
            score += config.coverage_penalty * sum(math.log(min(c, 1.0)) for c in coverage)
            found.append((score, log_prob, tokens))
    return sorted(found, reverse=True)


def search(model, sentences, config, lengths=None, **options):
    source = torch.tensor(sentences).repeat(SOURCE_LENGTH, 1)
    lengths = torch.tensor(lengths or [SOURCE_LENGTH] * len(sentences))
    return beam_search(model, source, lengths, config, bos_id=BOS, eos_id=EOS, **options)
