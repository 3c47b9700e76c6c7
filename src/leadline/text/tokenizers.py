"""Tokenizers: text to token ids, with a fingerprint. No special tokens are added and nothing is truncated.

PATH             a tokenizer.json, or the model folder that holds one (no torch needed)
tiktoken:NAME    an encoding or model name of tiktoken (extra `tiktoken`)
bytes            one token per UTF-8 byte
whitespace       one token per word
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.errors import MissingExtra, TokenizerError
from leadline.core.files import expand_path
from leadline.core.seeds import digest_bytes

if TYPE_CHECKING:
    import tiktoken
    from tokenizers import Tokenizer as RustTokenizer

    from leadline.core.types import Ids


def open_tokenizer(name: str) -> Tokenizer:
    """The tokenizer of this name. `server` is handled by the model provider."""
    if name == "bytes":
        return ByteTokenizer()
    if name == "whitespace":
        return WhitespaceTokenizer()
    kind, _, rest = name.partition(":")
    if kind == "tiktoken":
        return TiktokenTokenizer(rest or "o200k_base")
    return FileTokenizer(find_tokenizer_file(expand_path(name)))


def find_tokenizer_file(path: Path) -> Path:
    """The tokenizer.json of a model folder, or the file itself."""
    file = path / "tokenizer.json" if os.path.isdir(path) else path
    if os.path.isfile(file):  # unlike pathlib, this takes names that no file can have
        return file
    if os.path.isfile(path / "tokenizer.model"):
        raise TokenizerError(
            "this folder has a sentencepiece tokenizer.model but no tokenizer.json",
            where=str(path),
            fix="save it once with transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)",
        )
    raise TokenizerError(
        f"there is no tokenizer at {path}",
        where="tokenizer",
        fix="give tokenizer=FOLDER with a tokenizer.json, tokenizer=server, tokenizer=bytes or tokenizer=whitespace",
    )


def _ids(values: Sequence[int]) -> Ids:
    return np.array(values, dtype=np.int32)


class FileTokenizer:
    """A tokenizer.json through the `tokenizers` library."""

    def __init__(self, file: Path) -> None:
        from tokenizers import Tokenizer as RustTokenizer

        self.file = file
        try:
            self._data = file.read_bytes()
            self._rust: RustTokenizer = RustTokenizer.from_buffer(self._data)
        except Exception as error:  # the library raises bare Exception for a file it cannot read
            raise TokenizerError(
                f"not a usable tokenizer: {error}", where=str(file), fix="give a tokenizer.json of a fast tokenizer"
            ) from None
        # Files saved by training scripts may have both, and would truncate or pad every document.
        self._rust.no_truncation()
        self._rust.no_padding()

    @cached_property
    def fingerprint(self) -> str:
        return f"file:{digest_bytes(self._data)}"

    def encode(self, text: str) -> Ids:
        return _ids(self._encoded(self._rust.encode, text).ids)

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [_ids(e.ids) for e in self._encoded(self._rust.encode_batch_fast, list(texts))]

    def ends(self, text: str) -> list[int] | None:
        return [end for _, end in self._encoded(self._rust.encode, text).offsets]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        text: str = self._rust.decode(list(ids), skip_special_tokens=True)
        return text

    @cached_property
    def begins_with(self) -> str:
        """The special tokens that the tokenizer itself puts before a text, such as `<s>`; empty if there are none."""
        encoded = self._rust.encode("a", add_special_tokens=True)
        return "".join(
            token
            for token, _ in takewhile(
                lambda pair: pair[1], zip(encoded.tokens, encoded.special_tokens_mask, strict=True)
            )
        )

    def has_token_with(self, characters: str) -> bool:
        """Whether any token contains these ASCII characters side by side."""
        return characters in self._token_texts

    @cached_property
    def _token_texts(self) -> str:
        """All tokens of texts as the file writes them: in byte-level vocabularies too, printable ASCII is written as it
        is. Special tokens such as `<file_sep>`, which a vocabulary may list, are no part of texts."""
        added = self._rust.get_added_tokens_decoder()
        special = {token.content for token in added.values() if token.special}
        return "\n".join(self._rust.get_vocab(with_added_tokens=False).keys() - special)

    def is_special(self, token: int) -> bool:
        return token in self._rust.get_added_tokens_decoder()

    def _encoded(self, encode: Callable[..., Any], text: str | list[str]) -> Any:
        try:
            return encode(text, add_special_tokens=False)
        except Exception as error:  # the library raises bare Exception, as for an unknown token that is not there
            fix = "give a complete tokenizer.json: its unknown token must be in its vocabulary"
            raise TokenizerError(f"cannot encode a text: {error}", where=str(self.file), fix=fix) from None


class TiktokenTokenizer:
    """An encoding of tiktoken, by its name or the name of a model."""

    def __init__(self, name: str) -> None:
        try:
            import tiktoken
        except ImportError:
            raise MissingExtra("tiktoken", "tiktoken", where=f"tokenizer=tiktoken:{name}") from None
        self._encoding: tiktoken.Encoding
        try:
            if name in tiktoken.list_encoding_names():
                self._encoding = tiktoken.get_encoding(name)
            else:
                self._encoding = tiktoken.encoding_for_model(name)
        except KeyError:
            raise TokenizerError(
                f"tiktoken knows no encoding or model {name!r}",
                where="tokenizer",
                fix=f"known encodings: {', '.join(tiktoken.list_encoding_names())}",
            ) from None
        except Exception as error:  # it downloads its vocabulary, and raises errors of its HTTP library
            raise TokenizerError(
                f"tiktoken could not load {name!r}: {error}",
                where="tokenizer",
                fix="set TIKTOKEN_CACHE_DIR to a folder that holds the vocabulary",
            ) from None

    @property
    def fingerprint(self) -> str:
        return f"tiktoken:{self._encoding.name}"

    def encode(self, text: str) -> Ids:
        return _ids(self._encoding.encode(text, allowed_special="all"))

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [self.encode(text) for text in texts]

    def has_token_with(self, characters: str) -> bool:
        """Whether any token contains these ASCII characters side by side."""
        return characters.encode() in self._token_bytes

    @cached_property
    def _token_bytes(self) -> bytes:
        return b"\n".join(self._encoding.token_byte_values())

    def ends(self, text: str) -> list[int] | None:
        tokens = self._encoding.encode(text, allowed_special="all")
        _, starts = self._encoding.decode_with_offsets(tokens)
        return [*starts[1:], len(text)]


class ByteTokenizer:
    """One token per UTF-8 byte."""

    fingerprint = "bytes"

    def encode(self, text: str) -> Ids:
        return np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8).astype(np.int32)

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [self.encode(text) for text in texts]

    def ends(self, text: str) -> Sequence[int] | None:
        if text.isascii():
            return range(1, len(text) + 1)
        sizes = [len(c.encode("utf-8", "surrogatepass")) for c in text]
        return [i + 1 for i, size in enumerate(sizes) for _ in range(size)]


_WORD = re.compile(r"\S+")


class WhitespaceTokenizer:
    """One token per word, so that tokens can be counted by hand."""

    fingerprint = "whitespace"

    def encode(self, text: str) -> Ids:
        return _ids([zlib.crc32(word.encode("utf-8", "surrogatepass")) >> 1 for word in text.split()])

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [self.encode(text) for text in texts]

    def ends(self, text: str) -> list[int] | None:
        return [m.end() for m in _WORD.finditer(text)]


_APPROXIMATE = re.compile(r" ?[^\W\d_]{1,9}|\d{1,3}| ?[^\w\s]{1,2}|\n+|\s|_|\w")
"""Words in parts, numbers in groups of three, punctuation: about as many as the tokens of today's models."""


class ApproximateTokenizer:
    """Parts of words, to lay texts out for a model whose tokenizer is not public and whose API counts prompts."""

    fingerprint = "approximate"

    def __init__(self, address: str = "") -> None:
        self.address = address
        """The API that counts: a thread that builds a document waits for it."""

    def encode(self, text: str) -> Ids:
        return _ids([zlib.crc32(part.encode("utf-8", "surrogatepass")) >> 1 for part in _APPROXIMATE.findall(text)])

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return [self.encode(text) for text in texts]

    def ends(self, text: str) -> list[int] | None:
        return [m.end() for m in _APPROXIMATE.finditer(text)]
