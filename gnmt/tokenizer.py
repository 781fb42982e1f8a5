"""Text <-> ids with one SentencePiece vocabulary for both sides."""

import functools
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import sentencepiece

from gnmt.errors import CheckpointError, ConfigError

# SentencePiece marks word starts with U+2581, and its trainer skips lines that hold U+2585.
_WORD_START = "\u2581"
_RESERVED = {_WORD_START: "_", "\u2585": "#"}
# Characters that show nothing and that no keyboard types; the joiners U+200C and U+200D carry meaning and stay.
_INVISIBLE = "\u00ad\u200b\u2060\ufeff"
_TABLE = str.maketrans(
    {character: " " for character in map(chr, range(0x2B00)) if unicodedata.category(character) in ("Zs", "Zl", "Zp")}
    | {chr(code): " " if chr(code).isspace() else None for code in (*range(0x20), *range(0x7F, 0xA0))}
    | {"\u3000": " "}
    | dict.fromkeys(_INVISIBLE)
    | _RESERVED
)
# The characters that `normalize` alters.
ALTERED = tuple(character for character in map(chr, _TABLE) if character != " ")
_SPACES = re.compile(" +")


def normalize(text: str) -> str:
    """Bring a text into the form that ids keep: decoding the encoded text gives exactly this.

    Any white space (also U+2028, U+00A0, a bare carriage return) becomes one space, none at the ends; control
    characters (NUL too) and invisible ones (soft hyphen, zero-width space, byte order mark) are taken out; U+2581 and
    U+2585, which SentencePiece keeps for itself, become `_` and `#`. Letters, accents and case are not touched.
    """
    return _SPACES.sub(" ", text.translate(_TABLE)).strip(" ")


class Tokenizer:
    """A SentencePiece model whose vocabulary covers every character through byte pieces: nothing becomes unknown.

    Ids 0 to 3 are pad, unk, bos and eos.
    """

    pad_id, unk_id, bos_id, eos_id = range(4)

    def __init__(self, model: bytes) -> None:
        """Take a serialised model.

        Raises:
            CheckpointError: it is not a SentencePiece model, or its special ids are others.
        """
        self.model = model
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError:
            raise CheckpointError("the tokenizer is damaged or no SentencePiece model; export the model anew") from None
        p = self._processor
        found = (p.pad_id(), p.unk_id(), p.bos_id(), p.eos_id())
        expected = (self.pad_id, self.unk_id, self.bos_id, self.eos_id)
        if found != expected:
            raise CheckpointError(f"the tokenizer has pad, unk, bos, eos ids {found}, expected {expected}")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read `tokenizer.model`."""
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise CheckpointError(f"cannot read the tokenizer {path}: {error.strerror}") from None

    @classmethod
    def train(cls, sentences: Iterable[str], vocab_size: int, model_type: str = "unigram") -> Self:
        """Learn a vocabulary of exactly `vocab_size` pieces.

        Args:
            sentences: texts of both sides.
            vocab_size: pieces, with the 4 special and the 256 byte ones among them.
            model_type: `unigram` or `bpe`.

        Raises:
            ConfigError: the text supports no vocabulary of this size; the message says what it supports.
        """
        buffer = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=filter(None, map(normalize, sentences)),
                model_writer=buffer,
                vocab_size=vocab_size,
                model_type=model_type,
                normalization_rule_name="identity",
                byte_fallback=True,
                character_coverage=0.9999,
                pad_id=cls.pad_id,
                unk_id=cls.unk_id,
                bos_id=cls.bos_id,
                eos_id=cls.eos_id,
                split_digits=True,
                max_sentence_length=1 << 16,
                minloglevel=2,
            )
        except (RuntimeError, ValueError) as error:
            raise ConfigError(_explain(str(error), vocab_size)) from None
        return cls(buffer.getvalue())

    @property
    def vocab_size(self) -> int:
        """Number of pieces."""
        size: int = self._processor.vocab_size()
        return size

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without bos and eos; empty if there is nothing to see in it."""
        ids: list[int] = self._processor.encode(normalize(text))
        return ids

    def encode_inside(self, text: str) -> list[int]:
        """Ids of a text that stands within a longer one, with no space before it."""
        ids: list[int] = self._processor.encode(self._stranger + normalize(text))
        return ids[len(self._processor.encode(self._stranger)) :]

    @functools.cached_property
    def _stranger(self) -> str:
        """A character that no piece holds, so that none goes on with what stands behind it."""
        known = set("".join(self.pieces(range(self.vocab_size))))
        return next(character for character in map(chr, range(0xE000, 0xF900)) if character not in known)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The pieces that ids stand for; U+2581 at the start of a piece marks the start of a word."""
        pieces: list[str] = [self._processor.id_to_piece(int(i)) for i in ids]
        return pieces

    def piece_bytes(self) -> list[bytes]:
        """What each piece of the vocabulary stands for in UTF-8; nothing for special ones."""
        p = self._processor
        return [
            bytes([int(piece[3:-1], 16)])
            if p.is_byte(i)
            else b""
            if p.is_control(i) or p.is_unknown(i)
            else piece.replace(_WORD_START, " ").encode()
            for i, piece in enumerate(p.id_to_piece(list(range(self.vocab_size))))
        ]

    def word_numbers(self, ids: Sequence[int]) -> np.ndarray:
        """The white-space word of the decoded text, counted from 0, that each piece belongs to; empty without words."""
        words, before, start = [], 0, 0
        for end, piece in enumerate(self.pieces(ids)):
            if piece.startswith(_WORD_START) and end:
                before += len(self.decode(ids[start:end]).split())
                start = end
            words.append(before + len(self.decode(ids[start : end + 1]).split()))
        if not words or not words[-1]:
            return np.zeros(0, dtype=np.int64)
        # Bytes that do not make a character yet, or make a space, are no words of their own.
        return np.clip(np.maximum.accumulate(words) - 1, 0, words[-1] - 1)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, up to the first eos; other special ids are left out."""
        ids = list(ids)
        if self.eos_id in ids:
            ids = ids[: ids.index(self.eos_id)]
        text: str = self._processor.decode([i for i in ids if i > self.eos_id])
        # A model may predict byte pieces that make a control character or a line end; a line must stay one line.
        return normalize(text)

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        return type(self), (self.model,)


def _explain(message: str, vocab_size: int) -> str:
    """Turn a SentencePiece training error into what a user can do about it."""
    if limit := re.search(r"value <= (\d+)", message):
        return (
            f"a vocabulary of {vocab_size} pieces is more than the training text supports: "
            f"set the vocabulary size (model.network.vocab_size of a run) to at most {limit[1]}"
        )
    if re.search(r"[Vv]ocabulary size is smaller than required", message):
        needed = re.search(r"(\d+) vs (\d+)", message)
        least = f" to at least {needed[2]}" if needed else ""
        return (
            f"a vocabulary of {vocab_size} pieces cannot hold the alphabet and 256 bytes: "
            f"raise the vocabulary size (model.network.vocab_size of a run){least}"
        )
    if "sentences_.empty()" in message:
        return "no vocabulary can be trained: there is no text on either side of the training corpus"
    return f"no vocabulary of {vocab_size} pieces could be trained: {message.strip().splitlines()[-1]}"
