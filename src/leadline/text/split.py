"""Cutting text into pieces at places where a fact can stand and tokenizers split anyway.

A piece carries its own white space: a plain space leads it, line breaks trail it. Most tokenizers glue a space to the
word after it, and many glue line breaks to the punctuation before them.
"""

from __future__ import annotations

import re
from typing import Literal

Unit = Literal["sentence", "paragraph"]

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*(?= +[\"'(\[]?[A-Z0-9])")
_ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|cf|vs|etc|Mr|Mrs|Ms|Dr|St|No|Fig|al|[A-Z])\.)$")


def split_paragraphs(text: str) -> list[str]:
    """Paragraphs with the blank lines after them; lines inside one are joined."""
    found = re.split(r"\n[ \t]*\n\s*", text.replace("\r\n", "\n").strip())
    return [" ".join(p.split()) + "\n\n" for p in found if p.strip()]


def split_sentences(text: str) -> list[str]:
    """Sentences: the first of a paragraph bare, the others after a space, the last with the blank line after it."""
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


def split_blocks(text: str) -> list[str]:
    """Code, cut before top-level lines that follow a blank line: indentation never meets a joint."""
    lines = text.replace("\r\n", "\n").replace("\t", "    ").splitlines(keepends=True)
    blocks: list[list[str]] = [[]]
    blank = False
    for line in lines:
        if blank and line[0] not in " )]}\n#" and blocks[-1]:
            blocks.append([])
        blocks[-1].append(line)
        blank = not line.strip()
    return ["".join(block) for block in blocks if "".join(block).strip()]
