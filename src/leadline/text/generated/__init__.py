"""Generated haystack text: prose, legal, medical and chat documents that nobody has read before.

    volume("prose", 7)      the seventh volume of prose, about 600,000 characters, the same on every machine

A domain is a grammar and a plan. The grammar maps a symbol to alternatives; `{symbol}` is expanded in turn, `{Symbol}`
is capitalised, `{a symbol}` gets its article, `[one|other]` is a choice on the spot. A document first binds its own names, places and figures, so that they
come back in every paragraph, and then writes its paragraphs by the plan. No fixed run of words in a pattern is long,
so that two documents share hardly any phrase of eight words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from leadline.core.seeds import rng

VOLUME_CHARACTERS = 600_000
VERSION = 1
"""Raised when the same volume would have another text."""
DOMAINS = ("prose", "legal", "medical", "chat")

Grammar = Mapping[str, Sequence[str]]
_SLOT = re.compile(r"\{(a )?(\w+)\}")
_CHOICE = re.compile(r"\[([^\]]+)\]")
_VOWEL_SOUND = re.compile(r"(?!one\b|uni|use|eu)[aeiou]|hour|honest|8|11\b|18\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Domain:
    """What a module of this package provides: patterns, the values of one document, and its paragraphs in order."""

    grammar: Grammar
    bind: Callable[[random.Random], dict[str, str]]
    """Names and figures of one document; they take precedence over the grammar."""
    plan: Callable[[random.Random], Sequence[str]]
    """Symbols of the paragraphs of one document."""
    paragraph_values: Callable[[random.Random], dict[str, str]] = lambda draw: {}
    """Values drawn anew for every paragraph, such as dates and sums."""


def volume(domain: str, number: int) -> str:
    """One volume of a domain: whole documents until it is full."""
    rules = _compiled(domain)
    documents: list[str] = []
    size = 0
    while size < VOLUME_CHARACTERS:
        document = write_document(rules, rng(VERSION, domain, number, len(documents)))
        documents.append(document)
        size += len(document) + 2
    return "\n\n".join(documents)


def write_document(rules: CompiledDomain, draw: random.Random) -> str:
    writer = _Writer(rules.patterns, draw)
    bound = rules.domain.bind(draw)
    paragraphs = []
    for symbol in rules.domain.plan(draw):
        values = {**bound, **rules.domain.paragraph_values(draw)}
        paragraphs.append(writer.expand(symbol, values))
    return "\n\n".join(paragraphs)


Pattern = tuple[str | tuple[str, bool, bool], ...]
"""Literal text, or (symbol, capitalised, with article)."""


class CompiledDomain:
    """A domain whose patterns are split once."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.patterns = {s: tuple(map(_parse, alternatives)) for s, alternatives in _with_named_choices(domain.grammar).items()}


class _Writer:
    """Expands symbols for one document. The alternatives of a symbol are dealt like cards: each comes once before any
    comes again, so that a document does not repeat itself within a page."""

    def __init__(self, patterns: Mapping[str, tuple[Pattern, ...]], draw: random.Random) -> None:
        self._patterns = patterns
        self._draw = draw
        self._decks: dict[str, list[Pattern]] = {}

    def expand(self, symbol: str, values: Mapping[str, str]) -> str:
        deck = self._decks.get(symbol)
        if not deck:
            deck = self._decks[symbol] = list(self._patterns[symbol])
            self._draw.shuffle(deck)
        written = []
        for part in deck.pop():
            if isinstance(part, str):
                written.append(part)
                continue
            name, capitalised, article = part
            text = values.get(name) or self.expand(name, values)
            if article:
                text = ("an " if _VOWEL_SOUND.match(text) else "a ") + text
            written.append(text[:1].upper() + text[1:] if capitalised else text)
        return "".join(written)


def _with_named_choices(grammar: Grammar) -> dict[str, list[str]]:
    """The grammar with every `[one|other]` as a symbol of its own."""
    named: dict[str, list[str]] = {}

    def name(match: re.Match[str]) -> str:
        symbol = f"choice_{len(named)}"
        named[symbol] = match.group(1).split("|")
        return f"{{{symbol}}}"

    plain = {s: [_CHOICE.sub(name, pattern) for pattern in alternatives] for s, alternatives in grammar.items()}
    return plain | named


def _parse(pattern: str) -> Pattern:
    parts: list[str | tuple[str, bool, bool]] = []
    end = 0
    for match in _SLOT.finditer(pattern):
        if match.start() > end:
            parts.append(pattern[end : match.start()])
        name = match.group(2)
        parts.append((name[0].lower() + name[1:], name[0].isupper(), bool(match.group(1))))
        end = match.end()
    if end < len(pattern):
        parts.append(pattern[end:])
    return tuple(parts)


_COMPILED: dict[str, CompiledDomain] = {}


def _compiled(domain: str) -> CompiledDomain:
    if domain not in _COMPILED:
        _COMPILED[domain] = CompiledDomain(import_module(f"leadline.text.generated.{domain}").DOMAIN)
    return _COMPILED[domain]
