"""A server's own tokenizer, asked over HTTP. vLLM, SGLang and llama.cpp each have a `/tokenize` of their own manner.

Small texts are kept, because laying out a document asks for the same ones again and again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from leadline.core.digest import digest
from leadline.core.errors import ServerError
from leadline.models.openai.discovery import ServerFacts, ask_json

if TYPE_CHECKING:
    from leadline.core.types import Ids
    from leadline.models.openai.http import HttpClient

KEPT_TEXTS = 20_000
KEPT_CHARACTERS = 4_000
"""Longer texts are not kept: they are whole haystacks, asked for once."""
CONNECTIONS = 8
TELLTALE = (
    "The quick brown fox; l'été naïve, Übergröße. 3.14159 and 1234567, 00 000\t\ttabs\n\n\n    indent('x') != \"y\"\n"
    "數據與模型 日本語テスト 한국어 русский текст العربية हिन्दी ไทย 🙂🚀 ½ ﬁ \u00a0nbsp  double  spaces "
    "camelCaseWord SNAKE_CASE_WORD https://example.org/a?b=c&d=%20"
)
"""A text that two different tokenizers are most unlikely to split alike."""
_SPECIALS = "<|im_start|>user<|eot_id|></s><s>[INST]<think>\n"


class ServerTokenizer:
    """Text to ids by asking the server that also answers."""

    def __init__(self, client: HttpClient, facts: ServerFacts) -> None:
        self._client = client
        self._facts = facts
        self._small = lru_cache(KEPT_TEXTS)(self._ask)

    @property
    def address(self) -> str:
        return self._client.root_url

    @cached_property
    def fingerprint(self) -> str:
        """From how a telling text is split, since the vocabulary itself cannot be seen."""
        return f"server:{digest([self.encode(TELLTALE + _SPECIALS).tolist(), self._facts.vocabulary])}"

    def encode(self, text: str) -> Ids:
        return (self._small if len(text) <= KEPT_CHARACTERS else self._ask)(text).copy()

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        if len(texts) < 2:
            return [self.encode(text) for text in texts]
        return _side_by_side(self.encode, texts)

    def ends(self, text: str) -> list[int] | None:
        """Where each token ends, when the server can name its tokens and they are the text."""
        pieces = self._pieces(text)
        return None if pieces is None else _ends(pieces, text)

    def special_ids(self, text: str) -> list[int]:
        """Ids with what the server adds to a plain completion's prompt by itself."""
        return [int(i) for i in self._tokens(text, special=True)]

    def chat_ids(self, body: dict[str, Any]) -> list[int]:
        """Ids of messages as the server's template writes them (vLLM)."""
        reply = self._post("/tokenize", {"model": self._facts.model, **body})
        return [int(i) for i in reply["tokens"]]

    def decode(self, ids: Sequence[int]) -> str:
        body = {"model": self._facts.model, "tokens": [int(i) for i in ids], "skip_special_tokens": False}
        reply = self._post("/detokenize", body)
        text = next((reply[key] for key in ("prompt", "content", "text") if key in reply), None)
        if not isinstance(text, str):
            raise ServerError("the server's /detokenize gives no text", where=self._client.root_url)
        return text

    def _ask(self, text: str) -> Ids:
        return np.array(self._tokens(text, special=False), dtype=np.int32)

    def _tokens(self, text: str, *, special: bool) -> list[int]:
        if self._facts.kind == "llamacpp":
            body = {"content": text, "add_special": special, "parse_special": True}
        else:
            body = {"model": self._facts.model, "prompt": text, "add_special_tokens": special}
        tokens: list[int] = self._post("/tokenize", body)["tokens"]
        return tokens

    def _pieces(self, text: str) -> list[bytes] | None:
        """The text of each token, or None where this kind of server does not tell."""
        if self._facts.kind == "llamacpp":
            body = {"content": text, "add_special": False, "parse_special": True, "with_pieces": True}
            tokens = self._post("/tokenize", body)["tokens"]
            if tokens and not isinstance(tokens[0], dict):
                return None
            return [p.encode() if isinstance(p, str) else bytes(p) for p in (t["piece"] for t in tokens)]
        if self._facts.kind == "vllm":
            body = {"model": self._facts.model, "prompt": text, "add_special_tokens": False, "return_token_strs": True}
            names = self._post("/tokenize", body).get("token_strs")
            return None if names is None else [_piece(name) for name in names]
        return None

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return ask_json(self._client, "POST", self._client.root_url + path, msgspec.json.encode(body))


def _side_by_side(encode: Callable[[str], Ids], texts: Sequence[str]) -> list[Ids]:
    """Over several connections. Daemon threads rather than a pool, which a program waits for when it ends: a server
    that hangs must not keep anybody who pressed Ctrl-C."""
    left, found, troubles = deque(enumerate(texts)), dict[int, "Ids"](), list[BaseException]()

    def ask() -> None:
        try:
            for number, text in iter(lambda: _next(left), None):
                found[number] = encode(text)
        except BaseException as trouble:
            troubles.append(trouble)
            left.clear()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(min(CONNECTIONS, len(texts)))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        left.clear()  # nobody wants the rest
    if troubles:
        raise troubles[0]
    return [found[number] for number in range(len(texts))]


def _next(left: deque[tuple[int, str]]) -> tuple[int, str] | None:
    try:
        return left.popleft()
    except IndexError:
        return None


def _ends(pieces: Sequence[bytes], text: str) -> list[int] | None:
    """Characters at which pieces end; a token that ends inside a character ends with it. None if they differ."""
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
def _byte_letters() -> dict[str, int]:
    """The letters in which byte-level tokenizers name bytes (GPT-2's table, in which printable bytes stand for
    themselves and the others follow from U+0100 on)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(0x100 + i): b for i, b in enumerate(others)}


def _piece(name: str) -> bytes:
    """The bytes of a token from its name in a vocabulary, byte-level or sentencepiece."""
    letters = _byte_letters()
    if name.startswith("<0x") and name.endswith(">") and len(name) == 6:
        return bytes([int(name[3:5], 16)])
    if all(c in letters for c in name):
        return bytes(letters[c] for c in name)
    return name.replace("\u2581", " ").encode()
