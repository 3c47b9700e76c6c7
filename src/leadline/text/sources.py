"""Haystacks: the text that fills documents. None of them needs a download.

noise                               five short sentences, repeated
prose, legal, medical, reports, chat, code,
agent                               generated text without end, about invented people, places and projects
german, french, spanish             generated prose in other languages
python-docs, python-code            the documentation and the source of Python's standard library
PATH                                a file, folder or glob
prose:0.5,code:0.3,PATH:0.2         a mixture: pages of each in turn, in fixed proportions of characters
"""

from __future__ import annotations

import glob
import math
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from leadline.core.contracts import Source
from leadline.core.drafts import Filler, PieceBank
from leadline.core.errors import SourceError
from leadline.core.files import cache_folder, expand_path, read_cache, read_text, write_cache
from leadline.core.registry import names, plugin_file, source
from leadline.core.seeds import digest, rng, seed_of
from leadline.core.types import Cluster
from leadline.text.fillers import Mixture, Stretch, TextFiller
from leadline.text.generated import GeneratedText

if TYPE_CHECKING:
    from leadline.core.types import Indices


# --- pieces -------------------------------------------------------------------------------------
#
# Text is cut where a fact can be placed and tokenizers split anyway. A piece includes its white space: a space at its
# beginning, line breaks at its end. Most tokenizers join a space with the word after it, and many join line breaks with
# the punctuation before them.

Unit = Literal["sentence", "paragraph"]

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*(?= +[\"'(\[]?[A-Z0-9])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|etc|Mr|Mrs|Ms|Dr|St|No|Fig|al|[A-Z])\.)$")


def split_paragraphs(text: str) -> list[str]:
    """Paragraphs with the blank lines after them; lines inside one are joined."""
    paragraphs = re.split(r"\n[ \t]*\n\s*", text.replace("\r\n", "\n").strip())
    return [" ".join(p.split()) + "\n\n" for p in paragraphs if p.strip()]


def split_sentences(text: str) -> list[str]:
    """Sentences: the first of a paragraph without a space, the others after one, the last with the blank line."""
    return [piece for paragraph in split_paragraphs(text) for piece in _sentences(paragraph)]


def _sentences(paragraph: str) -> list[str]:
    pieces, start = [], 0
    for match in _SENTENCE_END.finditer(paragraph):
        if _ABBREVIATION.search(paragraph, max(0, match.end() - 8), match.end()):
            continue
        pieces.append(paragraph[start : match.end()])
        start = match.end()
    pieces.append(paragraph[start:])
    return pieces


LONG_SENTENCE = 800
"""Characters from which a sentence of a user's text is cut again: facts are at ends of pieces, and in a text of one
sentence that would be its first or last word at any depth."""
SHORT_PIECE = 120
LOOKED_AT = 10_000
_ANY_END = re.compile(r"[.!?;:,\n]+[\"')\]]*(?= )")


def split_finely(text: str) -> list[str]:
    """Sentences; those that are very long, as in a text in lower case or without any full stop, are cut at other
    punctuation, and where there is none between words."""
    return [part for piece in split_sentences(text) for part in _cut_long(piece)]


def _cut_long(piece: str) -> list[str]:
    if len(piece) <= LONG_SENTENCE:
        return [piece]
    parts, start = [], 0
    ends = [match.end() for match in _ANY_END.finditer(piece)]
    while len(piece) - start > 2 * SHORT_PIECE:
        reach = start + LONG_SENTENCE
        end = next((end for end in ends if start + SHORT_PIECE <= end <= reach), 0)
        end = end or piece.find(" ", start + 2 * SHORT_PIECE)
        if end < 0:
            break
        parts.append(piece[start:end])
        start = end
    return [*parts, piece[start:]]


LONG_BLOCK = 50
"""Characters of a piece of code from which the next statement begins another."""


def split_blocks(text: str) -> list[str]:
    """Code, cut after blank lines and, in long blocks, between statements; a piece begins with its indentation.

    No piece begins inside brackets or with a line that goes on from the one before.
    """
    pieces, piece, before, opened = [], "", "", 0
    for line in text.replace("\r\n", "\n").replace("\t", "    ").splitlines(keepends=True):
        inside = opened > 0 and len(piece) < 16 * LONG_BLOCK  # a bracket in a string is never closed
        continues = inside or before.endswith(("\\", ",", "(", "[", "{", "=")) or line.strip()[:1] in ("", *")]}#")
        if piece.strip() and not continues and (not before or len(piece) >= LONG_BLOCK):
            pieces.append(piece)
            piece = ""
        piece += line
        before = line.strip()
        opened = 0 if not before else opened + sum(map(before.count, "([{")) - sum(map(before.count, ")]}"))
    return [*pieces, piece if piece.endswith("\n") else piece + "\n"] if piece.strip() else pieces


# --- sources ------------------------------------------------------------------------------------

STRETCHES = 2
"""Version of the choice of stretches."""
LONG_PARAGRAPH = 64
"""Pieces of a mean paragraph from which every piece may begin a document: in a text without blank lines, all documents
would have the same beginning."""
TEXT_ENDINGS = (".txt", ".md", ".rst", ".tex", ".html", ".json", ".jsonl", ".csv", ".org", "")
CODE_ENDINGS = (".py", ".c", ".h", ".cpp", ".rs", ".go", ".java", ".js", ".ts", ".sh", ".toml", ".yaml", ".yml")


@dataclass(frozen=True)
class TextSource:
    """A text cut into pieces, read when it is first needed."""

    name: str
    read: Callable[[], str]
    split: Callable[[str], list[str]]
    repeat: bool = False
    where: str = ""
    cache_key: str = ""
    """The version of the text, if its pieces are kept in the cache folder; empty if it is read each time."""

    @cached_property
    def bank(self) -> PieceBank:
        pieces = self._pieces()
        if not pieces:
            raise SourceError(
                f"the haystack {self.name!r} contains no text", where=self.where, fix="give a file with sentences in it"
            )
        return PieceBank(self.name, digest(pieces), pieces)

    @property
    def long_sentences(self) -> float:
        """The share of the text's beginning that is in sentences so long that they were cut again."""
        if self.split is not split_finely:
            return 0.0
        sizes = [len(sentence) for sentence in split_sentences("".join(self.bank.pieces[:LOOKED_AT]))]
        return sum(size for size in sizes if size > LONG_SENTENCE) / max(sum(sizes), 1)

    @property
    def digest(self) -> str:
        """The digest of the text, and of the division into stretches."""
        anywhere = ["any piece"] if len(self._beginnings) > len(self._paragraphs) else []
        return digest([STRETCHES, self.bank.digest, *anywhere]) if anywhere or not self.repeat else self.bank.digest

    def _pieces(self) -> list[str]:
        if not self.cache_key:
            return self.split(self.read())
        file = cache_folder() / "pieces" / f"{digest([self.name, self.cache_key, self.split.__name__])}.json"
        pieces = read_cache(file, partial(msgspec.json.decode, type=list[str]))
        if pieces is None:
            pieces = self.split(self.read())
            write_cache(file, msgspec.json.encode(pieces))
        return pieces

    @cached_property
    def _paragraphs(self) -> Indices:
        """Pieces that begin a paragraph."""
        return np.array([i for i, piece in enumerate(self.bank.pieces) if not piece[:1].isspace()] or [0], np.int64)

    @cached_property
    def _beginnings(self) -> Indices:
        """Pieces that may begin a document."""
        count = len(self.bank.pieces)
        return np.arange(count) if count > LONG_PARAGRAPH * len(self._paragraphs) else self._paragraphs

    def filler(self, *, seed: int) -> Filler:
        return TextFiller(self.bank, int(rng(seed, "window").choice(self._beginnings)), self.repeat)

    def stretch(self, cluster: Cluster, seed: int, tokens: int) -> Stretch:
        """Not placed yet: that takes the tokens of the text."""
        return Stretch(
            self.bank, 0, self.repeat, cluster=cluster, seed=seed, tokens=tokens, beginnings=self._beginnings
        )

    def overlap(self, starts: Iterable[int], ends: Indices, tokens: int) -> float:
        """The share of the text of some haystacks, each of some tokens, that another of them has too. `starts` are
        their first pieces, `ends` the tokens before each piece and in all."""
        size = int(ends[-1])
        readers = np.zeros(len(ends), np.int64)
        for start in starts:
            stop = int(ends[start]) + min(tokens, size)
            readers[start] += 1
            readers[0] += stop > size  # wraps around
            readers[int(np.searchsorted(ends, stop if stop <= size else stop - size))] -= 1
        read = np.cumsum(readers)[:-1] * np.diff(ends)
        return float(read[np.cumsum(readers)[:-1] > 1].sum() / max(int(read.sum()), 1))


def stretch_of(source: Source, cluster: Cluster, seed: int, *, tokens: int) -> Filler:
    """The haystack of one cluster, for at most `tokens` tokens."""
    if isinstance(source, TextSource) and not source.repeat:
        return source.stretch(cluster, seed, tokens)
    return source.filler(seed=seed_of(seed, "haystack", *cluster.coordinates))


def open_source(name: str, *, unit: Unit = "sentence", repeat: bool = False) -> Source:
    """The haystack of this name: a registered one, a path, or a mixture of them."""
    if re.fullmatch(r"[^,]+:[\d.]+(,[^,]+:[\d.]+)*", name):
        parts = [part.rsplit(":", 1) for part in name.split(",")]
        return _mixture(name, tuple((part, _weight(weight, name)) for part, weight in parts), unit, repeat)
    return _single(name, unit, repeat)


@cache
def _mixture(name: str, parts: tuple[tuple[str, float], ...], unit: Unit, repeat: bool) -> Mixture:
    return Mixture(f"{name} by {unit}", tuple((weight, _single(part, unit, repeat)) for part, weight in parts))


@cache
def _single(name: str, unit: Unit, repeat: bool) -> Source:
    if name in names("sources") or plugin_file(name) is not None:
        haystack = source(name)
        if isinstance(haystack, str):  # a plugin may return the text itself
            haystack = TextSource(name, partial(str, haystack), split_sentences, where=name)
        if isinstance(haystack, TextSource):
            split = split_paragraphs if unit == "paragraph" and haystack.split is split_sentences else haystack.split
            changed = replace(haystack, split=split, repeat=repeat or haystack.repeat)
            return haystack if changed == haystack else changed  # the same one, so that its pieces are made once
        if isinstance(haystack, GeneratedText) and unit == "paragraph":
            return GeneratedText(haystack.name, by_paragraph=True)
        return haystack
    return _from_path(name, unit, repeat)


def _weight(text: str, where: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = 0.0
    if not 0 < weight < math.inf:
        raise SourceError(f"a part of a mixture has weight {text}", where=where, fix="weights are numbers above 0")
    return weight


def _from_path(name: str, unit: Unit, repeat: bool) -> TextSource:
    files = find_files(name)
    if not files:
        known = ", ".join(names("sources"))
        raise SourceError(
            f"there is no haystack {name!r}",
            where="haystack",
            fix=f"give one of {known}, a readable file, folder or glob, or a mixture such as prose:0.5,code:0.5",
        )
    is_code = all(f.suffix in CODE_ENDINGS for f in files)
    split = split_blocks if is_code else {"sentence": split_finely, "paragraph": split_paragraphs}[unit]
    return TextSource(name, lambda: "\n\n".join(read_text(f) for f in files), split, repeat, where=name)


def find_files(name: str) -> list[Path]:
    """The files of text or code at a path or glob."""
    path = expand_path(name)
    if os.path.isfile(path):
        return [path]
    if os.path.isdir(path):
        return sorted(p for p in path.rglob("*") if p.is_file() and p.suffix in TEXT_ENDINGS + CODE_ENDINGS)
    plain = next((i for i, part in enumerate(path.parts) if glob.has_magic(part)), len(path.parts))
    root, pattern = Path(*path.parts[:plain]), "/".join(path.parts[plain:])
    try:  # unlike glob.glob, this does not follow links in **, which may lead in circles
        return sorted(p for p in root.glob(pattern) if p.is_file()) if pattern else []
    except (ValueError, NotImplementedError, IndexError, OSError):  # not a pattern that can match
        return []


# --- built-in haystacks -------------------------------------------------------------------------

_NOISE = (
    "The tide comes in and the tide goes out.",
    "A gull sits on the old wooden post.",
    "The boats lie still along the quay.",
    "Somewhere a rope knocks against a mast.",
    "Then the wind turns and it all begins again.",
)


def noise() -> TextSource:
    """Five short sentences per line, the same line without end."""
    line = " ".join(_NOISE) + "\n"
    return TextSource("noise", lambda: line * 64, lambda text: text.splitlines(keepends=True), repeat=True)


PROSE, LEGAL, MEDICAL, REPORTS = map(GeneratedText, ("prose", "legal", "medical", "reports"))
CHAT, CODE, AGENT = map(GeneratedText, ("chat", "code", "agent"))
GERMAN, FRENCH, SPANISH = map(GeneratedText, ("german", "french", "spanish"))

_PYTHON = f"Python {sys.version.split()[0]}"
_LIBRARY = f"3 {sys.version} {sysconfig.get_path('stdlib')}"  # raise the number when the selection changes


@cache
def python_docs() -> TextSource:
    """The language reference and the docstrings of the standard library."""
    return TextSource("python-docs", _python_prose, split_sentences, where=_PYTHON, cache_key=_LIBRARY)


@cache
def python_code() -> TextSource:
    """The source of the standard library, cut at blank lines and between statements."""
    return TextSource("python-code", _python_code, split_blocks, where=_PYTHON, cache_key=_LIBRARY)


def _python_prose() -> str:
    from pydoc_data.topics import topics

    texts = [str(topics[name]) for name in sorted(topics)]
    docstrings = (m.group(1) for text in _standard_library() for m in re.finditer(r'"""(.*?)"""', text, re.DOTALL))
    seen: dict[str, None] = {}
    for text in [*texts, *docstrings]:
        for paragraph in re.split(r"\n\s*\n", text):
            prose = " ".join(paragraph.split())
            if _reads_as_prose(prose):
                seen.setdefault(prose)
    return "\n\n".join(seen)


def _reads_as_prose(text: str) -> bool:
    words = text.split()
    if len(words) < 8 or text[-1] not in ".!?" or ">>>" in text:
        return False
    return len(_NOT_PROSE.sub("", text)) > 0.85 * len(text)


_NOT_PROSE = re.compile(r"[^\w ]|[\d_]")  # neither a letter nor a space


def _python_code() -> str:
    kept, size = [], 0
    for text in _standard_library():
        if size > CODE_CHARACTERS:
            break
        kept.append(text)
        size += len(text)
    return "\n\n".join(kept)


CODE_CHARACTERS = 2_500_000
_SKIPPED = ("site-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data", "encodings", "__pycache__")


def _standard_library() -> Iterator[str]:
    scripts: list[Path] = []
    for folder, folders, files in os.walk(sysconfig.get_path("stdlib")):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        scripts.extend(Path(folder, name) for name in files if name.endswith(".py"))
    for file in sorted(scripts):
        text = file.read_text(encoding="utf-8", errors="replace")
        if text.isascii():
            yield text


def describe(haystack: Source) -> dict[str, str | int]:
    """A haystack's entry in the catalogue."""
    filler = haystack.filler(seed=0)
    pieces = filler.bank.pieces
    if filler.limit is None and isinstance(haystack, GeneratedText):
        return {
            "name": haystack.name,
            "digest": haystack.digest,
            "pieces": len(pieces),
            "sample": haystack.text(0, 400),
        }
    characters = sum(map(len, pieces))
    sample = pieces[len(pieces) // 3].strip()
    return {
        "name": haystack.name,
        "digest": haystack.digest,
        "pieces": len(pieces),
        "characters": characters,
        "sample": sample,
    }
