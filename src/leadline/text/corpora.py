"""Corpora of whole documents, and their tokens in one tokenizer.

FOLDER or GLOB     every text file in it is a document
FILE.jsonl, .json  a line, or an item of the list, is a document: a text, or an object with a text field
FILE               one document
FILE.zip           the lines of the .jsonl files in it; of several splits those for validation
govreport          the same, of the file that `leadline sources pull govreport` downloads
prose, code ...    generated documents, as many as are wanted
python-docs ...    another built-in haystack, cut into documents that do not overlap
"""

from __future__ import annotations

import threading
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.errors import SourceError, TokenizerError
from leadline.core.files import parse_json, read_text
from leadline.core.registry import names
from leadline.core.seeds import bulk_rng, digest, seed_of
from leadline.core.types import Frame
from leadline.text.downloads import DOWNLOADS, find_data
from leadline.text.generated import GeneratedText
from leadline.text.sources import TextSource, find_files, open_source

if TYPE_CHECKING:
    from leadline.core.types import Ids

CHARACTERS_PER_TOKEN = 6
"""More than model tokenizers have in prose and code; in one that counts words a document may be too short."""
USUAL_FIELDS = ("text", "input", "document", "content")
"""Fields that hold the text in most files, tried in this order unless another one is named."""
_ENCODED_CHARACTERS_PER_TOKEN = 8
_EDGE = 32
"""Tokens at the end of a cut text that could differ if the text went on."""


class Corpus(Protocol):
    """Documents by number. Which text has which number depends on the seed alone."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        """A document, of at least `tokens` tokens if the corpus can choose its size; None when there are no more."""
        ...


@dataclass(frozen=True)
class ListedCorpus:
    """A list of documents, each of its own length."""

    name: str
    texts: Sequence[str]

    @cached_property
    def digest(self) -> str:
        return digest(list(self.texts))

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        order = _order(seed, self.digest, len(self.texts))
        return self.texts[order[number]] if number < len(order) else None


@dataclass(frozen=True)
class CutCorpus:
    """A long text cut into documents of the wanted length, which do not overlap."""

    name: str
    source: TextSource

    @property
    def digest(self) -> str:
        return self.source.digest

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        stretches = self._stretches(tokens * CHARACTERS_PER_TOKEN)
        order = _order(seed, self.digest, len(stretches))
        if number >= len(order):
            return None
        first, last = stretches[order[number]]
        return "".join(self.source.bank.pieces[first:last]).rstrip()

    def _stretches(self, characters: int) -> list[tuple[int, int]]:
        """(first, end) of consecutive pieces with at least `characters` characters; an incomplete rest is left out."""
        stretches, first, size = [], 0, 0
        for number, piece in enumerate(self.source.bank.pieces):
            size += len(piece)
            if size >= characters:
                stretches.append((first, number + 1))
                first, size = number + 1, 0
        return stretches


@dataclass(frozen=True)
class GeneratedCorpus:
    """Generated texts, as many as are wanted, each of whole texts of at least the wanted length."""

    name: str
    source: GeneratedText

    @property
    def digest(self) -> str:
        return self.source.digest

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        drawn = seed_of(seed, "corpus", self.digest, number)
        return self.source.text(drawn, tokens * CHARACTERS_PER_TOKEN).rstrip()


@cache
def _order(seed: int, corpus: str, count: int) -> tuple[int, ...]:
    return tuple(bulk_rng(seed, "corpus", corpus).permutation(count).tolist())


@cache
def open_corpus(name: str, field: str = "text") -> Corpus:
    """The corpus of this name. `field` is the text field of objects in a JSON file."""
    if name in names("sources"):
        source = open_source(name)
        if isinstance(source, GeneratedText):
            return GeneratedCorpus(name, source)
        if not isinstance(source, TextSource) or source.repeat:
            raise SourceError(f"{name!r} cannot be cut into documents", where="documents", fix="use prose or code")
        return CutCorpus(name, source)
    files = [find_data(name)] if name in DOWNLOADS else find_files(name)
    if not files:
        raise SourceError(
            f"there are no documents {name!r}",
            where="documents",
            fix="give a folder, a glob, a .jsonl or .json file, or prose, code, reports or govreport",
        )
    texts = [text for file in files for text in _texts(file, field)]
    kept = [text for text in texts if text.strip()]
    if not kept:
        raise SourceError("these documents contain no text", where=name)
    return ListedCorpus(name, kept)


def _texts(file: Path, field: str) -> Iterator[str]:
    if file.suffix == ".jsonl":
        yield from _lines(read_text(file), field, str(file))
    elif file.suffix == ".zip":
        for member, text in _unpacked(file):
            yield from _lines(text, field, f"{file}/{member}")
    elif file.suffix == ".json":
        items = parse_json(read_text(file), str(file))
        if isinstance(items, dict):  # such as {"data": [...]}
            items = next((v for v in items.values() if isinstance(v, list)), [items])
        for number, item in enumerate(items if isinstance(items, list) else [items]):
            yield _text(item, field, f"{file}, item {number}")
    else:
        yield read_text(file)


def _lines(text: str, field: str, where: str) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _text(parse_json(line, f"{where}:{number}"), field, f"{where}:{number}")


def _unpacked(file: Path) -> Iterator[tuple[str, str]]:
    try:
        with zipfile.ZipFile(file) as archive:
            members = sorted(n for n in archive.namelist() if n.endswith(".jsonl") and not n.startswith("__MACOSX"))
            chosen = [n for n in members if "validation" in n] or members
            for name in chosen:
                yield name, archive.read(name).decode("utf-8")
    except (zipfile.BadZipFile, UnicodeDecodeError, OSError, EOFError, RuntimeError, zlib.error) as error:
        raise SourceError(f"cannot be unpacked: {error}", where=str(file)) from None


def _text(item: Any, field: str, where: str) -> str:
    if isinstance(item, str):
        return item
    for name in (field, *(USUAL_FIELDS if field == USUAL_FIELDS[0] else ())):
        if isinstance(item, dict) and isinstance(item.get(name), str):
            text: str = item[name]
            return text
    known = [k for k, v in item.items() if isinstance(v, str)] if isinstance(item, dict) else []
    raise SourceError(
        f"this document has no text field {field!r}",
        where=where,
        fix=f"name one of its fields: --set field={known[0]}" if known else "give texts, or objects with a text field",
    )


# --- documents in tokens ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text in tokens: first those that the tokenizer begins any text with, then its own, `ids[before:]`. `ends` has
    for each of its own tokens the character of `text` at which it ends; None if the tokenizer does not give these.
    """

    number: int
    """Of the document in its corpus."""
    text: str
    ids: Ids
    ends: tuple[int, ...] | None
    before: int

    @property
    def tokens(self) -> int:
        return len(self.ids) - self.before

    @property
    def own(self) -> Ids:
        return self.ids[self.before :]

    def cut(self, tokens: int) -> PlainText:
        """Its first tokens."""
        kept = min(tokens, self.tokens)
        ends = None if self.ends is None else self.ends[:kept]
        text = self.text[: ends[-1]] if ends else self.text
        return PlainText(self.number, text, self.ids[: self.before + kept], ends, self.before)

    def characters(self, start: int, stop: int) -> tuple[int, int]:
        """The characters of the tokens from `start` to `stop`; (0, 0) when unknown."""
        if self.ends is None:
            return 0, 0
        return (self.ends[start - 1] if start else 0), self.ends[stop - 1]

    def words(self, start: int, stop: int) -> str:
        """The text of the tokens from `start` to `stop`; empty when unknown."""
        first, last = self.characters(start, stop)
        return self.text[first:last]

    def utf8(self, start: int, stop: int) -> int:
        """Bytes of the tokens' text; 0 when unknown."""
        return len(self.words(start, stop).encode("utf-8", "surrogatepass"))

    def tokens_in(self, marks: Iterable[tuple[int, int]]) -> list[int]:
        """The tokens that end inside stretches of characters."""
        if self.ends is None:
            raise TokenizerError(
                "this tokenizer does not say where its tokens end, so marked words cannot be found in it",
                where="tokenizer",
                fix="use the model's own tokenizer.json",
            )
        ends = self.ends
        return [t for start, stop in marks for t in range(bisect_right(ends, start), bisect_right(ends, stop))]


class CorpusTokens:
    """The documents of a corpus with at least `least` tokens, in order, each encoded once; at most `most` of each."""

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, plain: Frame, *, least: int, most: int, seed: int) -> None:
        self._corpus = corpus
        self._tokenizer = tokenizer
        self._plain = plain
        self._least, self._most, self._seed = least, most, seed
        self._found: list[PlainText] = []
        self._tried = 0
        self._lock = threading.Lock()

    def document(self, number: int) -> PlainText:
        with self._lock:
            while len(self._found) <= number:
                text = self._corpus.text(self._tried, tokens=self._most, seed=self._seed)
                if text is None:
                    raise self._too_few(number + 1)
                encoded = encode_plain(text, self._tokenizer, self._plain, most=self._most, number=self._tried)
                self._tried += 1
                if encoded.tokens >= self._least:
                    self._found.append(encoded)
            return self._found[number]

    def _too_few(self, wanted: int) -> SourceError:
        few = len(self._found)
        return SourceError(
            f"{self._corpus.name!r} has {few:,} document{'s' if few != 1 else ''} of {self._least:,} tokens or more "
            f"({self._tried - few:,} are shorter), and {wanted:,} are wanted",
            where="documents",
            fix=f"ask for {few:,} or fewer (--samples), for a shorter length, or give more text",
        )


def encode_plain(text: str, tokenizer: Tokenizer, plain: Frame, *, most: int, number: int = 0) -> PlainText:
    """The first `most` tokens of a text at most. A very long text is not encoded much further than that."""
    beginning = tokenizer.encode(plain.before)
    before = len(beginning)
    size = (most + _EDGE) * _ENCODED_CHARACTERS_PER_TOKEN
    while True:
        whole = plain.before + text[:size]
        ids = tokenizer.encode(whole)
        if size >= len(text) or len(ids) >= before + most + _EDGE:
            break
        size *= 2
    if not np.array_equal(ids[:before], beginning):
        raise TokenizerError(
            f"this tokenizer joins {plain.before!r} with the text after it", where=tokenizer.fingerprint
        )
    ends = tokenizer.ends(whole)
    kept = np.ascontiguousarray(ids[: before + most])
    if ends is None or len(ends) != len(ids):
        return PlainText(number, text[:size], kept, None, before)
    own = tuple(end - len(plain.before) for end in ends[before : len(kept)])
    return PlainText(number, text[: own[-1]] if own else "", kept, own, before)
