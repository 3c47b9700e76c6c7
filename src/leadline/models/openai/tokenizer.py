"""The tokenizer of a model behind a server: a local one, or the server's own `/tokenize` over HTTP.

vLLM, SGLang and llama.cpp have that endpoint, with different fields.
Results for short texts are cached, because fitting a document asks for the same ones many times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from leadline.core.activity import waiting_for
from leadline.core.contracts import Tokenizer
from leadline.core.errors import ServerError, TokenizerError
from leadline.core.format import format_count
from leadline.core.seeds import digest
from leadline.core.workers import call_at_once
from leadline.models.openai.discovery import ServerInfo, ask_json
from leadline.text.tokenizers import open_tokenizer

if TYPE_CHECKING:
    from leadline.core.types import Ids
    from leadline.models.openai.http import HttpClient

CACHED_TEXTS = 20_000
CACHED_CHARACTERS = 4_000
"""Longer texts are not cached: they are whole haystacks, tokenised once."""
CONNECTIONS = 8
WORTH_JOINING = 16
JOINED_CHARACTERS = 20_000
SEPARATORS = (
    "<|endoftext|>", "</s>", "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<eos>", "<end_of_turn>", "<|end|>", "<s>"
)  # fmt: skip
_BESIDE = ("\nHello", "\n  indented", "\n 12.5", "\nÜber uns\n\n", "\n日本", "\n\nA", "\n.", "\n ")
TOKENIZER_TEST_TEXT = (
    "The quick brown fox; l'été naïve, Übergröße. 3.14159 and 1234567, 00 000\t\ttabs\n\n\n    indent('x') != \"y\"\n"
    "數據與模型 日本語テスト 한국어 русский текст العربية हिन्दी ไทย 🙂🚀 ½ ﬁ \u00a0nbsp  double  spaces "
    "camelCaseWord SNAKE_CASE_WORD https://example.org/a?b=c&d=%20"
)
"""A text that two different tokenizers are most unlikely to split in the same way."""
ALLOW_MISMATCH = "add --allow-tokenizer-mismatch: lengths are then not those that the model reads"
_SPECIALS = "<|im_start|>user<|eot_id|></s><s>[INST]<think>\n"


class ServerTokenizer:
    """Text to ids, by the server that also answers."""

    def __init__(self, client: HttpClient, server: ServerInfo) -> None:
        self._client = client
        self._server = server
        self._ask_cached = lru_cache(CACHED_TEXTS)(self._ask)

    @property
    def address(self) -> str:
        return self._client.root_url

    @cached_property
    def fingerprint(self) -> str:
        """Digest of the ids of a test text, since servers do not show their vocabulary."""
        return f"server:{digest([self.encode(TOKENIZER_TEST_TEXT + _SPECIALS).tolist(), self._server.vocabulary])}"

    def encode(self, text: str) -> Ids:
        return (self._ask_cached if len(text) <= CACHED_CHARACTERS else self._ask)(text).copy()

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        if len(texts) < WORTH_JOINING or self._separator is None:
            return _encode_in_threads(self.encode, texts)
        groups = _groups(texts)
        joined = _encode_in_threads(self._ask, [self._separator[0].join(group) for group in groups])
        ids_of_texts: list[Ids] = []
        for group, ids in zip(groups, joined, strict=True):
            at = np.flatnonzero(ids == self._separator[1])
            parts = [part[1:] if i else part for i, part in enumerate(np.split(ids, at))]
            if len(parts) != len(group) or not np.array_equal(
                parts[len(group) // 2], self.encode(group[len(group) // 2])
            ):
                parts = _encode_in_threads(self.encode, group)  # a text has the separator in it, or changes beside it
            ids_of_texts += parts
        return ids_of_texts

    @cached_property
    def _separator(self) -> tuple[str, int] | None:
        """A special token that leaves the tokens on both sides as they are; None if none is known. No server tokenises
        many texts in one request, but all split at their special tokens."""
        for text in SEPARATORS:
            ids = self.encode(text).tolist()
            if len(ids) == 1 and all(
                self.encode(left + text + right).tolist()
                == [*self.encode(left).tolist(), *ids, *self.encode(right).tolist()]
                for left, right in pairwise(_BESIDE)
            ):
                return text, ids[0]
        return None

    def ends(self, text: str) -> list[int] | None:
        """The character at which each token ends; None where the server cannot say."""
        pieces = self._pieces(text)
        return None if pieces is None else _ends(pieces, text)

    def special_ids(self, text: str) -> list[int]:
        """Ids with the special tokens that the server adds to a completion prompt."""
        return self._tokens(text, special=True)

    def added_ids(self, text: str) -> list[int]:
        """The special tokens that the server puts before a completion prompt."""
        plain, special = self.encode(text), self.special_ids(text)
        return special[: max(0, len(special) - len(plain))]

    def chat_ids(self, body: dict[str, Any]) -> list[int]:
        """Ids of messages after the server's chat template (vLLM)."""
        return self._ids({"model": self._server.model, **body})

    def decode(self, ids: Sequence[int]) -> str:
        body = {"model": self._server.model, "tokens": [int(i) for i in ids], "skip_special_tokens": False}
        reply = self._post("/detokenize", body)
        text = next((reply[key] for key in ("prompt", "content", "text") if key in reply), None)
        if not isinstance(text, str):
            raise ServerError("the server's /detokenize gives no text", where=self._client.root_url)
        return text

    def _ask(self, text: str) -> Ids:
        return np.array(self._tokens(text, special=False), dtype=np.int32)

    def _tokens(self, text: str, *, special: bool) -> list[int]:
        if self._server.kind == "llamacpp":
            body = {"content": text, "add_special": special, "parse_special": True}
        else:
            body = {"model": self._server.model, "prompt": text, "add_special_tokens": special}
        return self._ids(body)

    def _ids(self, body: dict[str, Any]) -> list[int]:
        tokens = self._post("/tokenize", body).get("tokens")
        if not isinstance(tokens, list) or not all(type(i) is int and 0 <= i < 2**31 for i in tokens):
            raise ServerError("the server's /tokenize gives no token ids", where=self._client.root_url)
        return tokens

    def _pieces(self, text: str) -> list[bytes] | None:
        """The bytes of each token, or None where this kind of server does not return them."""
        if self._server.kind == "llamacpp":
            body = {"content": text, "add_special": False, "parse_special": True, "with_pieces": True}
            tokens = self._post("/tokenize", body).get("tokens")
            try:
                return [p.encode() if isinstance(p, str) else bytes(p) for p in (t["piece"] for t in tokens or ())]
            except (TypeError, KeyError, ValueError):
                return None
        if self._server.kind == "vllm":
            body = {"model": self._server.model, "prompt": text, "add_special_tokens": False, "return_token_strs": True}
            names = self._post("/tokenize", body).get("token_strs")
            return [_piece(str(name)) for name in names] if isinstance(names, list) else None
        return None

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return ask_json(self._client, "POST", self._client.root_url + path, msgspec.json.encode(body))


def find_tokenizer(
    client: HttpClient, server: ServerInfo, named: str, *, allow_mismatch: bool
) -> tuple[Tokenizer, str]:
    """The tokenizer, and a note on it. It must give a test text as many tokens as the server's own, where that can be
    asked; with `allow_mismatch` a difference is only noted."""
    chosen = _open(client, server, named)
    if server.kind == "plain" or not named or isinstance(chosen, ServerTokenizer):
        return chosen, ""  # a plain server shows it by its counts of two prompts, in FrameFinder
    theirs = ServerTokenizer(client, server)
    counts = tuple(len(tokenizer.encode(TOKENIZER_TEST_TEXT)) for tokenizer in (chosen, theirs))
    if counts[0] == counts[1]:
        return chosen, ""
    problem = "this tokenizer is not the server's: a test text has {} tokens here and {} there".format(*counts)
    if not allow_mismatch:
        fix = f"leave tokenizer= out to use the server's own, or {ALLOW_MISMATCH}"
        raise TokenizerError(problem, where=f"tokenizer={named}", fix=fix)
    return chosen, problem


def _open(client: HttpClient, server: ServerInfo, named: str) -> Tokenizer:
    """The named tokenizer, or the model's own: from its folder, else from the server."""
    can_tokenize = server.kind != "plain"
    if server.suggested_url and named in ("", "server"):
        raise ServerError(
            "base_url is not the URL of this server's API",
            where=f"GET {client.base_url}/models",
            fix=f"write base_url={server.suggested_url}",
        )
    if named == "server" or (not named and can_tokenize):
        if not can_tokenize:
            raise TokenizerError(
                "this server has no /tokenize of a kind known here (vLLM, SGLang and llama.cpp have one)",
                where="tokenizer=server",
                fix="give tokenizer=FOLDER with the model's tokenizer.json",
            )
        remote = ServerTokenizer(client, server)
        if not named and server.folder is not None:
            local = open_tokenizer(str(server.folder))
            if local.encode(TOKENIZER_TEST_TEXT).tolist() == remote.encode(TOKENIZER_TEST_TEXT).tolist():
                return local
        return remote
    if not named:
        raise TokenizerError(
            "the model's tokenizer is not known: this server does not offer it",
            where=f"openai:{server.model}",
            fix="give tokenizer=FOLDER with the model's tokenizer.json, or tokenizer=tiktoken:NAME",
        )
    return open_tokenizer(named)


def _encode_in_threads(encode: Callable[[str], Ids], texts: Sequence[str]) -> list[Ids]:
    """Over several connections."""
    if len(texts) < 2:
        return [encode(text) for text in texts]
    encoded: list[Ids] = []

    def encode_one(text: str) -> Ids:
        ids = encode(text)
        encoded.append(ids)
        return ids

    with waiting_for(lambda: f"the server's tokenizer: {len(encoded):,} of {format_count(len(texts), 'text')}"):
        return call_at_once([partial(encode_one, text) for text in texts], CONNECTIONS)


def _groups(texts: Sequence[str]) -> list[list[str]]:
    """Neighbours that have JOINED_CHARACTERS together."""
    groups, size = [list[str]()], 0
    for text in texts:
        if groups[-1] and size + len(text) > JOINED_CHARACTERS:
            groups.append([])
            size = 0
        groups[-1].append(text)
        size += len(text)
    return groups


def _ends(pieces: Sequence[bytes], text: str) -> list[int] | None:
    """Characters at which pieces end; inside a character means at its end. None if they are not the text."""
    data = text.encode()
    if b"".join(pieces) != data:
        return None
    reach = np.cumsum([len(p) for p in pieces])
    if len(data) == len(text):
        ends: list[int] = reach.tolist()
        return ends
    begins = (np.frombuffer(data, np.uint8) & 0xC0) != 0x80
    ends = np.concatenate(([0], np.cumsum(begins)))[reach].tolist()
    return ends


@lru_cache(1)
def _byte_characters() -> dict[str, int]:
    """Character to byte of byte-level vocabularies (GPT-2's table: printable bytes are themselves, the others start at
    U+0100)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


def _piece(name: str) -> bytes:
    """The bytes of a token from its entry in a byte-level or sentencepiece vocabulary."""
    letters = _byte_characters()
    if name.startswith("<0x") and name.endswith(">") and len(name) == 6:
        return bytes([int(name[3:5], 16)])
    if all(c in letters for c in name):
        return bytes(letters[c] for c in name)
    return name.replace("\u2581", " ").encode()
