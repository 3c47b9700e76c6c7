"""The one normaliser: what two texts must share to count as the same words.

It ignores formatting, never content. Ignored: letter case, white space, line breaks,
terminal escapes, invisible and full-width characters, kinds of dash and quote, commas inside a number
(1,234,567). Not ignored: another spelling, another script's look-alike letter, a missing digit.
"""

from __future__ import annotations

import re
import string
import unicodedata
from functools import cache

VERSION = "4"
"""The version of all scorers, raised whenever an answer could get another score. 4: whole tokens, with any wording
around them; strict scores are 0 beside another value."""

_PUNCTUATION = string.punctuation + " \u2026"

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursor movement
    r"|\x1b\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)"  # titles and links
    r"|\x1b[ -/]*[0-~]"
)
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]+"
)
_SURROGATES = re.compile("[\ud800-\udfff]+")
_CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_LOW_CONTROLS = re.compile("[\x00-\x1f]")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_LINE_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_NOT_PLAIN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]|\d,\d{3}")
"""What `visible` changes in a text of ASCII signs."""
_DASHES_AND_QUOTES = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\u02d7\ufe58\ufe63", "-"),
        **dict.fromkeys("\u2014\u2015", " - "),  # these separate words, the others join them
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    }
)
_MARKS_IN_A_ROW = 30
"""More marks on one letter than any language writes (Unicode's Stream-Safe Text Format, UAX 15). Sorting a
longer run takes time that grows with its square."""


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compiled on first use: most commands never read an answer, and compiling all patterns takes 30 ms."""
    return re.compile(pattern)


def visible(text: str) -> str:
    """The text as a reader sees it: lines and letter case kept, formatting removed."""
    if text.isascii() and ((text.isprintable() and "," not in text) or not _NOT_PLAIN.search(text)):
        return text
    return _without_formatting(text)


def _without_formatting(text: str) -> str:
    text = _ESCAPES.sub("", text)
    text = _LINE_BREAKS.sub("\n", text)
    if not text.isascii():
        text = _SURROGATES.sub("\ufffd", text)
        text = _composed(_INVISIBLE.sub("", text)).translate(_DASHES_AND_QUOTES)
    text = _CONTROLS.sub(" ", text)
    return _THOUSANDS.sub(lambda number: number[0].replace(",", ""), text)


def clean(text: str) -> str:
    """The text for comparison: visible, letter case folded, white space single."""
    if text.isascii() and text.replace("-", "").isalnum():
        return text.casefold()  # one plain word, as most targets and planted values are
    return " ".join(folded(text).split())


def folded(text: str) -> str:
    """Visible, letter case folded, lines kept."""
    text = visible(text).casefold()
    return text if text.isascii() else _composed(text)


def bare(text: str) -> str:
    """Clean, and without the punctuation around it: `"**Paris.**"` is `paris`."""
    return clean(text).strip(_PUNCTUATION)


def whole_number(text: str) -> int | None:
    """The number that a text is, or None. Python converts no number of more than 4,300 digits, which an answer that
    repeats one digit to its end can have."""
    try:
        return int(text)
    except ValueError:
        return None


def post_process(prediction: str) -> str:
    """The text as RULER compares it: strip, control characters to line breaks, strip again; nothing else."""
    return _LOW_CONTROLS.sub("\n", prediction.strip()).strip()


def _composed(text: str) -> str:
    return unicodedata.normalize("NFKC", _runs_of_marks().sub(r"\1", text))


@cache
def _runs_of_marks() -> re.Pattern[str]:
    # The highest combining mark is U+1E94A; the table is read once, and only when an answer is not plain ASCII.
    marks = "".join(re.escape(c) for c in map(chr, range(0x300, 0x1F000)) if unicodedata.combining(c))
    return re.compile(f"([{marks}]{{{_MARKS_IN_A_ROW}}})[{marks}]+")
