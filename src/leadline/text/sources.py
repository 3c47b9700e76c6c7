"""Haystacks: the text that fills documents. None of them needs a download.

noise                               five short sentences, repeated
prose                               the language reference and the docstrings of Python's standard library
essays                              generated essays about invented places: about 1.2M tokens, not to be found elsewhere
code                                the source of Python's standard library
PATH                                a file, folder or glob
prose:0.5,code:0.3,PATH:0.2         a mixture with fixed proportions, drawn for each document
"""

from __future__ import annotations

import glob
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from leadline.core.cache import cache_folder, write_cache
from leadline.core.contracts import Source
from leadline.core.digest import digest
from leadline.core.errors import SourceError
from leadline.core.registry import names, plugin_file, source
from leadline.core.seeds import bulk_rng, rng
from leadline.core.types import Filler, PieceBank
from leadline.text import generated

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
    found = re.split(r"\n[ \t]*\n\s*", text.replace("\r\n", "\n").strip())
    return [" ".join(p.split()) + "\n\n" for p in found if p.strip()]


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

TEXT_ENDINGS = (".txt", ".md", ".rst", ".tex", ".html", ".json", ".jsonl", ".csv", ".org", "")
CODE_ENDINGS = (".py", ".c", ".h", ".cpp", ".rs", ".go", ".java", ".js", ".ts", ".sh", ".toml", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Window:
    """A text from a drawn position on, wrapping around at its end; used more than once only with `repeat`."""

    bank: PieceBank
    start: int
    repeat: bool
    prefix_stable: bool = True

    @property
    def limit(self) -> int | None:
        return None if self.repeat else len(self.bank.pieces)

    def arrange(self, count: int) -> Indices:
        size = len(self.bank.pieces)
        if not self.repeat:
            count = min(count, size)
        return (np.arange(count, dtype=np.int64) + self.start) % size


@dataclass(frozen=True)
class TextSource:
    """A text cut into pieces, read when it is first needed."""

    name: str
    read: Callable[[], str]
    split: Callable[[str], list[str]]
    repeat: bool = False
    where: str = ""
    cache_key: str = ""
    """What the text depends on, if its pieces are kept in the cache folder; empty if it is read each time."""

    @cached_property
    def bank(self) -> PieceBank:
        pieces = self._pieces()
        if not pieces:
            raise SourceError(
                f"the haystack {self.name!r} contains no text", where=self.where, fix="give a file with sentences in it"
            )
        return PieceBank(self.name, digest(pieces), pieces)

    @property
    def digest(self) -> str:
        return self.bank.digest

    def _pieces(self) -> list[str]:
        if not self.cache_key:
            return self.split(self.read())
        file = cache_folder() / "sources" / f"{digest([self.name, self.cache_key, self.split.__name__])}.json"
        try:
            return msgspec.json.decode(file.read_bytes(), type=list[str])
        except (OSError, msgspec.DecodeError):
            pieces = self.split(self.read())
            write_cache(file, msgspec.json.encode(pieces))
            return pieces

    @cached_property
    def _beginnings(self) -> list[int]:
        """Pieces that begin a paragraph, and so may begin a document."""
        return [i for i, piece in enumerate(self.bank.pieces) if not piece[:1].isspace()] or [0]

    def filler(self, *, seed: int) -> Filler:
        return Window(self.bank, rng(seed, "window").choice(self._beginnings), self.repeat)


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Units of several texts, interleaved so that every beginning of the document has the same proportions."""

    bank: PieceBank
    order: Indices
    limit: int | None
    prefix_stable: bool = True

    def arrange(self, count: int) -> Indices:
        if self.limit is None:
            return np.resize(self.order, count)
        return self.order[:count]


@dataclass(frozen=True)
class Mixture:
    """Several sources in fixed proportions of characters."""

    name: str
    parts: tuple[tuple[float, TextSource], ...]
    repeat: bool = False

    @cached_property
    def bank(self) -> PieceBank:
        pieces = [piece for _, part in self.parts for piece in _as_units(part.bank.pieces)]
        return PieceBank(self.name, digest([self.name, *(p.digest for _, p in self.parts)]), pieces, contiguous=False)

    @property
    def digest(self) -> str:
        return self.bank.digest

    def filler(self, *, seed: int) -> Filler:
        order = self._order(seed)
        return Shuffled(self.bank, order, None if self.repeat else len(order))

    def _order(self, seed: int) -> Indices:
        """Each part's units in a drawn order; the next unit is from the part that is furthest behind its share."""
        sizes = self._unit_sizes
        first, shares, units = 0, [], []
        for number, (weight, part) in enumerate(self.parts):
            count = len(part.bank.pieces)
            drawn = bulk_rng(seed, "mixture", number).permutation(count) + first
            # A unit's position is where the part's share reaches its middle; sorting by that interleaves the parts.
            reach = np.cumsum(sizes[drawn]) - sizes[drawn] / 2
            shares.append(reach / weight)
            units.append(drawn)
            first += count
        end = min(float(share[-1]) for share in shares)  # past this, one part has run out
        positions, order = np.concatenate(shares), np.concatenate(units)
        ranked = np.argsort(positions, kind="stable")
        chosen: Indices = order[ranked[positions[ranked] <= end]]
        return chosen

    @cached_property
    def _unit_sizes(self) -> Indices:
        return np.array([len(piece) for piece in self.bank.pieces], np.int64)


def _as_units(pieces: Sequence[str]) -> list[str]:
    """Every unit on its own lines, so that prose and code can follow each other."""
    return [piece.strip("\n").strip(" ") + "\n\n" for piece in pieces]


def open_source(name: str, *, unit: Unit = "sentence", repeat: bool = False) -> Source:
    """The haystack of this name: a registered one, a path, or a mixture of them."""
    if re.fullmatch(r"[^,]+:[\d.]+(,[^,]+:[\d.]+)*", name):
        parts = [part.rsplit(":", 1) for part in name.split(",")]
        return _mixture(name, tuple((part, _weight(weight, name)) for part, weight in parts), unit, repeat)
    return _single(name, unit, repeat)


@cache
def _mixture(name: str, parts: tuple[tuple[str, float], ...], unit: Unit, repeat: bool) -> Mixture:
    opened = []
    for part, weight in parts:
        made = _single(part, unit, False)
        if not isinstance(made, TextSource):
            raise SourceError(f"{part!r} cannot be part of a mixture", where=name, fix="mix texts, files and folders")
        opened.append((weight, made))
    return Mixture(f"{name} by {unit}", tuple(opened), repeat)


@cache
def _single(name: str, unit: Unit, repeat: bool) -> Source:
    if name in names("sources") or plugin_file(name) is not None:
        made = source(name)
        if isinstance(made, str):  # a plugin may return the text itself
            made = TextSource(name, partial(str, made), split_sentences, where=name)
        if isinstance(made, TextSource):
            changes: dict[str, object] = {}
            if repeat:
                changes["repeat"] = True
            if unit == "paragraph" and made.split is split_sentences:
                changes["split"] = split_paragraphs
            return TextSource(**{**made.__dict__, **changes}) if changes else made
        return made
    return _from_path(name, unit, repeat)


def _weight(text: str, where: str) -> float:
    weight = float(text)
    if weight <= 0:
        raise SourceError(f"a part of a mixture has weight {text}", where=where, fix="weights are above 0")
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
    split = split_blocks if is_code else {"sentence": split_sentences, "paragraph": split_paragraphs}[unit]
    return TextSource(name, lambda: "\n\n".join(read_text(f) for f in files), split, repeat, where=name)


def find_files(name: str) -> list[Path]:
    """The files of text or code at a path or glob."""
    path = Path(name).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(p for p in path.rglob("*") if p.is_file() and p.suffix in TEXT_ENDINGS + CODE_ENDINGS)
    return sorted(Path(p) for p in glob.glob(str(path), recursive=True) if Path(p).is_file())


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SourceError("not a UTF-8 text", where=str(path), fix="leave it out, or save it as UTF-8") from None
    except OSError as error:
        raise SourceError(f"cannot be read: {error.strerror}", where=str(path)) from None


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


_PYTHON = f"Python {sys.version.split()[0]}"
_LIBRARY = f"3 {sys.version} {sysconfig.get_path('stdlib')}"  # raise the number when the selection changes


@cache
def prose() -> TextSource:
    """The language reference and the docstrings of the standard library."""
    return TextSource("prose", _python_prose, split_sentences, where=_PYTHON, cache_key=_LIBRARY)


@cache
def code() -> TextSource:
    """The source of the standard library, cut at blank lines and between statements."""
    return TextSource("code", _python_code, split_blocks, where=_PYTHON, cache_key=_LIBRARY)


ESSAY_VOLUMES = 8


@cache
def essays() -> TextSource:
    """Generated essays and local histories about invented places and people."""
    return TextSource("essays", _essays, split_sentences, cache_key=f"{generated.VERSION} {ESSAY_VOLUMES}")


def _essays() -> str:
    return "\n\n".join(generated.volume("prose", number) for number in range(ESSAY_VOLUMES))


def _python_prose() -> str:
    from pydoc_data.topics import topics

    texts = [str(topics[name]) for name in sorted(topics)]
    docstrings = (m.group(1) for text in _standard_library() for m in re.finditer(r'"""(.*?)"""', text, re.DOTALL))
    seen: dict[str, None] = {}
    for text in [*texts, *docstrings]:
        for paragraph in re.split(r"\n\s*\n", text):
            line = " ".join(paragraph.split())
            if _reads_as_prose(line):
                seen.setdefault(line)
    return "\n\n".join(seen)


def _reads_as_prose(line: str) -> bool:
    words = line.split()
    if len(words) < 8 or line[-1] not in ".!?" or ">>>" in line:
        return False
    return len(_NOT_PROSE.sub("", line)) > 0.85 * len(line)


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
    found: list[Path] = []
    for folder, folders, files in os.walk(sysconfig.get_path("stdlib")):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        found.extend(Path(folder, name) for name in files if name.endswith(".py"))
    for file in sorted(found):
        text = file.read_text(encoding="utf-8", errors="replace")
        if text.isascii():
            yield text


def describe(made: Source) -> dict[str, str | int]:
    """A haystack's entry in the catalogue."""
    bank = made.filler(seed=0).bank
    return {
        "name": made.name,
        "digest": made.digest,
        "pieces": len(bank.pieces),
        "characters": sum(map(len, bank.pieces)),
        "sample": bank.pieces[len(bank.pieces) // 3].strip(),
    }
