"""Model output that attacks the reader: scripts, terminal escapes, formulas, very long and invalid texts."""

from __future__ import annotations

import msgspec

from leadline.core.answers import Completion
from leadline.core.records import Record
from support.planted_runs import planted_records

MARK = "harmed"
HOSTILE = (
    f"</script><script>window.{MARK}=1</script>",
    f"<img src=x onerror='window.{MARK}=1'>",
    f"<!--<script>window.{MARK}=1</script>",
    f"'\"><svg onload=window.{MARK}=1>",
    "{{ 7*7 }}{% raw %}",
    "\x1b[31m\x1b]0;owned\x07 \u202eexe.txt\u2028\u2029\x00",
    '=HYPERLINK("http://example.invalid","x")',
    "a" * 1_000_000,
    "\ud800 half a pair",
)


def hostile_records() -> list[Record]:
    """One record for each hostile text, which is in every field that model output or a plugin can fill."""
    made = []
    for number, record in enumerate(
        planted_records(lambda n, d: 0.0, lengths=[1024], depths=[0.5], samples=len(HOSTILE))
    ):
        text = HOSTILE[number]
        made.append(
            msgspec.structs.replace(
                record,
                outcome=Completion(text, "stop", thinking=text[:2000], completion_tokens=1),
                question=msgspec.structs.replace(
                    record.question,
                    text=text[:2000],
                    targets=(text[:500],),
                    answer_prefix=text[:100],
                    labels={"label": text[:100]},
                ),
                detail=text[:100],
                document=f"{record.document} {text[:100]}",
                sent=msgspec.structs.replace(record.sent, notes=(text[:200],)),
            )
        )
    return made
