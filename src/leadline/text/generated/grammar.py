"""Reading the grammar files of generated text, and compiling them into pieces and tables.

A grammar is a file beside this one. Its sections are lists of patterns; a text is the section `document`, expanded.

    == habit                            a section: one pattern a line
    {She} [came in|left] before {the hour}.
    == colour: red | green | grey       the same, short
    == document trade: place | worker   drawn once a text: a row gives a value to each column
    == document people of anna, otto: first | she       ... to {anna.first}, {anna.she}, {otto.first}; rows are distinct
    == document town of here, there: town               ... to {here} and {there}
    == paragraph month: May | June      drawn once a paragraph
    == document year = 1841..1952       a number; `= year + 2..6` follows another, `= year + 1..2 each` grows with paragraphs
    * Al Ber Bran : berg dahl           in a list: all combinations of the two halves; `_` becomes a space

`{word}` is a section or value, `{Word}` begins with a capital, `{a word}` and `{A word}` have an article, `[one|other]`
is a choice on the spot. A section with lines `--` has patterns of several lines. `«`, `»`, `\\[`, `\\]` are literal {, }, [, ].
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_WRITTEN_OUT = 8
"""Combinations of choices in a run of words that are pieces of their own: fewer and longer pieces to put in order."""
MOST_PRODUCTS = 700
"""Values of two slots in one word, such as `{verb}_{noun}`, that are written out."""

FREE, PARAGRAPH, DOCUMENT = range(3)
_SCOPES = {"document": DOCUMENT, "paragraph": PARAGRAPH}


# --- reading a grammar file ---------------------------------------------------------------------


@dataclass(slots=True)
class Symbol:
    """A section, or a column of one, with its patterns."""

    patterns: list[str]
    key: str
    """What its choice is drawn for: columns of a section share it."""
    scope: int = FREE
    instance: int = 0
    """Which of several distinct rows."""
    first: int = 0
    """The number that the first pattern stands for."""
    after: tuple[str, int, int, bool] | None = None
    """(symbol, least, most, each): a number that follows another one."""


_HEADER = re.compile(r"== (?:(document|paragraph) )?(\w+)(?: of ([\w, ]+?))?(?:(:| =) *(.*))?$")
_NUMBER = re.compile(r"(?:(\w+) \+ )?(-?\d+)\.\.(-?\d+)(?: by (\d+))?( each)?$")
_CHOICE = re.compile(r"(?<!\\)\[([^\[\]]*[^\[\]\\])\]")
_ESCAPES = {"«": "\ue000", "»": "\ue001", "\\[": "\ue002", "\\]": "\ue003"}
_LITERAL = str.maketrans(dict(zip(_ESCAPES.values(), "{}[]", strict=True)))


def read_symbols(text: str) -> dict[str, Symbol]:
    """The sections of a grammar file by name."""
    symbols: dict[str, Symbol] = {}
    for section in re.split(r"^(?=== )", text, flags=re.MULTILINE)[1:]:
        head, _, body = section.partition("\n")
        match = _HEADER.match(head)
        if match is None:
            raise ValueError(f"not a section: {head}")
        scope, name, instances, sign, definition = match.groups()
        where = _SCOPES.get(scope, FREE)
        if sign == " =":
            symbols[name] = _number(name, definition, where, symbols)
        elif definition and _lines(body):
            _add_columns(symbols, name, where, instances, definition, _rows(body))
        else:
            patterns = definition.split(" | ") if definition else _patterns(body)
            symbols.setdefault(name, Symbol([], name, where)).patterns.extend(patterns)
    return _with_named_choices(symbols)


def _number(name: str, definition: str, scope: int, symbols: dict[str, Symbol]) -> Symbol:
    match = _NUMBER.match(definition)
    if match is None:
        raise ValueError(f"not a number: {name} = {definition}")
    parent, least, most, step, each = match.groups()
    low, high, by = int(least), int(most), int(step or 1)
    if parent is None:
        return Symbol([f"{n:,}" if by > 1 else str(n) for n in range(low, high + 1, by)], name, scope, first=low)
    base = symbols[parent]
    first, last = base.first + low, base.first + len(base.patterns) - 1 + high * (40 if each else 1)
    return Symbol([str(n) for n in range(first, last + 1)], name, scope, first=first, after=(parent, low, high, bool(each)))


def _rows(body: str) -> list[list[str]]:
    rows = []
    for line in _lines(body):
        if line.startswith("* "):
            left, right = line[2:].split(" : ")
            pairs = [[(a + b).replace("_", " ")] for a in left.split() for b in right.split()]
            rows += sorted(pairs, key=lambda pair: zlib.crc32(pair[0].encode()))  # neighbours should not look alike
        else:
            rows.append([cell.strip() for cell in line.split("|")])
    return rows


def _add_columns(
    symbols: dict[str, Symbol], name: str, scope: int, instances: str | None, columns: str, rows: Sequence[Sequence[str]]
) -> None:
    for number, column in enumerate(columns.split(" | ")):
        cells = [row[number] for row in rows]
        for instance, prefix in enumerate(instances.split(", ") if instances else [""]):
            full_name = column if not prefix else prefix if column == name else f"{prefix}.{column}"
            symbols[full_name] = Symbol(cells, name, scope, instance)


def _patterns(body: str) -> list[str]:
    if re.search(r"^--$", body, re.MULTILINE):
        return [block.strip("\n") for block in re.split(r"^--\n", body, flags=re.MULTILINE) if block.strip()]
    return [line.replace("\\n", "\n") for line in _lines(body)]


def _lines(body: str) -> list[str]:
    return [line.strip() for line in body.splitlines() if line.strip() and not line.startswith("#")]


def _with_named_choices(symbols: dict[str, Symbol]) -> dict[str, Symbol]:
    """The sections with every `[one|other]` as a section of its own, and escaped brackets as single characters."""
    named: dict[str, Symbol] = {}
    words = _Synonyms(symbols.pop("synonyms").patterns if "synonyms" in symbols else [])

    def name(match: re.Match[str]) -> str:
        choice = f"choice_{len(named)}"
        named[choice] = Symbol([v for text in match.group(1).split("|") for v in words.variants(text)], choice)
        return f"{{{choice}}}"

    for symbol in symbols.values():
        patterns = []
        for pattern in symbol.patterns:
            for written, kept in _ESCAPES.items():
                pattern = pattern.replace(written, kept)
            if symbol.scope == FREE:
                pattern = words.as_choices(pattern)
            while (changed := _CHOICE.sub(name, pattern)) != pattern:
                pattern = changed
            patterns.append(pattern)
        symbol.patterns = patterns
    return symbols | named


class _Synonyms:
    """Words and phrases that can stand for each other, from the section `synonyms`."""

    def __init__(self, lines: Sequence[str]) -> None:
        groups = [line.split(" | ") for line in lines]
        self._of = {word: group for group in groups for word in group}
        longest = sorted(self._of, key=len, reverse=True)
        words = "|".join(map(re.escape, longest))
        self._word = re.compile(rf"(?<![\w{{'-])(?<!\ba )(?<!\ban )(?:{words})(?![\w'}}-])", re.IGNORECASE) if words else None

    def _all(self, match: re.Match[str]) -> list[str]:
        word = match.group()
        group = self._of.get(word) or self._of.get(word[0].lower() + word[1:]) or [word]
        return [word[0].upper() + word[1:] for word in group] if word[0].isupper() else group

    def variants(self, text: str) -> list[str]:
        """The text with each of the words that can stand for the first one in it that has others."""
        match = self._word.search(text) if self._word else None
        if match is None:
            return [text]
        return [text[: match.start()] + word + text[match.end() :] for word in self._all(match)]

    def as_choices(self, text: str) -> str:
        """The text with choices for all such words outside the choices that it has."""
        if self._word is None:
            return text
        parts = re.split(r"(\[[^\]]*\]|\{[^}]*\})", text)
        parts[::2] = [self._word.sub(lambda match: f"[{'|'.join(self._all(match))}]", part) for part in parts[::2]]
        return "".join(parts)


# --- compiling it -------------------------------------------------------------------------------


class Around(NamedTuple):
    """What an expansion is surrounded by: white space and text before its first word, text after its last."""

    lead: str = ""
    before: str = ""
    after: str = ""
    capital: bool = False
    article: bool = False
    indent: str = ""
    """Of every line but the first."""


_SLOT = re.compile(r"\{(a |A )?([\w.]+)\}")
_WORD = re.compile(r"( *)((?:\{[^}]*\}|[^\s{])+)(\n*)")
_SENTENCE_END = re.compile(r"[.!?][\"')]*$")
_PLAIN = re.compile(r"[\w' -]+$")
_FIRST_LETTER = re.compile(r"[^\W_]")
_AN = re.compile(r"(?!one\b|uni[^nm]|use|eu|ut[ei])[aeiou]|hour|honest|heir|8|11\b|18\b", re.IGNORECASE)


@dataclass(slots=True)
class Compiler:
    """Turns sections into tables of numbers. A node is a piece, or the complement of a variant: a section with what
    surrounds it."""

    symbols: dict[str, Symbol]
    safe_joints: bool = False
    """Whether a piece ends with the indentation of the next line, but for its last space, and never with punctuation
    inside a word: tokenizers that split words first split there, and not between a line break and an indentation."""
    pieces: dict[str, int] = field(default_factory=dict)
    variants: dict[object, int] = field(default_factory=dict)
    alternatives: list[list[list[int]]] = field(default_factory=list)
    of_variant: list[Symbol] = field(default_factory=list)

    def compile(self, paragraph_end: str) -> Compiler:
        """From the section `document`, whose patterns are rows of paragraphs."""
        around, document = Around(after=paragraph_end), self.symbols["document"]
        plans = ([self.variant(name, around) for _, name in _SLOT.findall(plan)] for plan in document.patterns)
        self._variant("document", document, plans)
        return self

    def variant(self, name: str, around: Around) -> int:
        symbol = self.symbols[name]
        return self._variant((name, around), symbol, (self._expansion(p, around) for p in symbol.patterns))

    def _expansion(self, pattern: str, around: Around) -> list[int]:
        if _PLAIN.match(pattern):
            return [self._piece(self._text(pattern, around))]
        return self._nodes(pattern, around)

    def _variant(self, key: object, symbol: Symbol, alternatives: Iterator[list[int]]) -> int:
        if key not in self.variants:
            number = self.variants[key] = len(self.variants)
            self.alternatives.append([])
            self.of_variant.append(symbol)
            self.alternatives[number].extend(alternatives)
        return ~self.variants[key]

    def _nodes(self, pattern: str, around: Around) -> list[int]:
        """A pattern as nodes. Words between slots, with few choices among them, are written out as pieces, up to the
        end of a sentence or line."""
        nodes: list[int] = []
        run, begins_line = [""], True
        words = _WORD.findall(pattern)
        for number, (lead, word, breaks) in enumerate(words):
            indent = around.indent + lead if begins_line else ""
            here = Around(lead=indent[-1:] if self.safe_joints and indent else indent or lead, indent=indent)
            if number == 0:
                here = around._replace(lead=around.lead + lead, indent=indent)
            if number == len(words) - 1:
                breaks += around.after
            elif breaks and self.safe_joints:
                breaks += (around.indent + words[number + 1][0])[:-1]
            here = here._replace(after=breaks)
            begins_line = bool(breaks)
            options = self._options(word, here)
            if len(run) * max(len(options), 1) > MOST_WRITTEN_OUT or not options:
                nodes += self._run(run)
                run = [""]
            if not options or len(options) > MOST_WRITTEN_OUT:
                nodes += self._slots(word, here)
                continue
            run = [left + right for left in run for right in options]
            if _SENTENCE_END.search(run[0].rstrip()) or breaks:
                nodes += self._run(run)
                run = [""]
        return nodes + self._run(run)

    def _options(self, word: str, around: Around) -> list[str]:
        """All texts of a word without a slot, or with one that is a plain choice; none if there is more to it."""
        slot = _SLOT.search(word)
        if slot is None:
            return [self._text(word, around)]
        begin, end, name = word[: slot.start()], word[slot.end() :], slot.group(2)
        if slot.group(1) or "{" in end or not name.startswith("choice_"):
            return []
        values = self.symbols[name].patterns
        return [] if any("{" in v or "\n" in v for v in values) else [self._text(begin + v + end, around) for v in values]

    def _run(self, texts: Sequence[str]) -> list[int]:
        """The nodes of one of several texts."""
        if texts == [""]:
            return []
        if len(texts) == 1:
            return [self._piece(texts[0])]
        key = "\0".join(texts)
        return [self._variant(key, Symbol([], key), ([self._piece(text)] for text in texts))]

    def _slots(self, word: str, around: Around) -> list[int]:
        """A word with slots in it. Of several, all values of the first are written out, each with the rest."""
        first = _SLOT.search(word)
        if first is None:
            return [self._piece(self._text(word, around))]
        article, name = first.groups()
        begin, rest, symbol = word[: first.start()], word[first.end() :], name[0].lower() + name[1:]
        leads = not any(map(str.isalnum, begin))
        inside = around._replace(
            before=around.before + begin,
            capital=(around.capital and leads) or name[0].isupper() or article == "A ",
            article=bool(article) or (around.article and leads),
        )
        if "{" not in rest:
            return [self.variant(symbol, inside._replace(after=rest + around.after))]
        if self._products(word) > MOST_PRODUCTS:
            glued = "" if self.safe_joints or rest[0] in "._([" else rest[: rest.index("{")]
            head = self.variant(symbol, inside._replace(after=glued))
            return [head, *self._slots(rest[len(glued) :], Around(after=around.after, indent=around.indent))]
        alone, of = inside._replace(lead="", after=""), self.symbols[symbol]
        rest_of = (
            self._slots(self._settled(rest, of, n), around._replace(before=self._text(value, alone), capital=False, article=False))
            for n, value in enumerate(of.patterns)
        )
        return [self._variant((word, around), of, rest_of)]

    def _settled(self, word: str, chosen: Symbol, number: int) -> str:
        """The word with the values of slots that are drawn together with one that is chosen: columns of its row."""

        def value(match: re.Match[str]) -> str:
            name = match.group(2)
            other = self.symbols[name[0].lower() + name[1:]]
            if chosen.scope == FREE or (other.key, other.instance) != (chosen.key, chosen.instance):
                return match.group()
            text = other.patterns[number]
            return text[0].upper() + text[1:] if name[0].isupper() else text

        return _SLOT.sub(value, word)

    def _products(self, word: str) -> int:
        """Values of a word with several slots; more than are written out if one of them is not a plain list."""
        counts: dict[object, int] = {}
        for number, (_, name) in enumerate(_SLOT.findall(word)):
            symbol = self.symbols[name[0].lower() + name[1:]]
            plain = not any("{" in pattern for pattern in symbol.patterns)
            key = number if symbol.scope == FREE else (symbol.key, symbol.instance)
            counts[key] = len(symbol.patterns) if plain else MOST_PRODUCTS + 1
        return math.prod(counts.values())

    @staticmethod
    def _text(word: str, around: Around) -> str:
        if around.article:
            word = ("an " if _AN.match(word) else "a ") + word
        if around.capital:
            word = _FIRST_LETTER.sub(lambda m: m.group().upper(), word, count=1)
        return around.lead + around.before + word + around.after

    def _piece(self, text: str) -> int:
        text = text.translate(_LITERAL)
        return self.pieces.setdefault(text, len(self.pieces))
