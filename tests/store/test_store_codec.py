"""Records as lines: what goes in comes out, whatever a model says."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.core.answers import Completion, Failure, Sent
from leadline.core.records import PlantedRecord, Receipt, Record, Score
from leadline.core.types import Cell, Question
from leadline.store import runs as codec

words = st.text(max_size=40)
finite = st.floats(allow_nan=False, allow_infinity=False, width=32)
counts = st.integers(0, 10**7)
maybe_counts = st.none() | counts
cells = st.builds(Cell, words, st.integers(1, 2**20), st.none() | st.floats(0, 1), st.integers(0, 500))
completions = st.builds(
    Completion, text=words, finish=words, thinking=words, prompt_tokens=maybe_counts, completion_tokens=maybe_counts
)
failures = st.builds(
    Failure, why=st.sampled_from(["timeout", "server", "context_length"]), message=words, transient=st.booleans(),
    retry_after=st.none() | st.floats(0, 100), status=st.none() | st.integers(400, 599),
)  # fmt: skip
records = st.builds(
    Record,
    cell=cells,
    reading=st.sampled_from(["fresh", "shared", "nested"]),
    document=words,
    cluster=words,
    model=words,
    question=st.builds(
        Question,
        words,
        answer_prefix=words,
        targets=st.lists(words, max_size=3).map(tuple),
        allowance=counts,
        labels=st.dictionaries(words, words, max_size=2),
        mistakes=st.dictionaries(words, st.lists(words, max_size=2).map(tuple), max_size=2),
        reference=st.none() | finite | words | st.lists(words | counts, max_size=2),
    ),
    facts=st.lists(st.builds(PlantedRecord, words, counts, counts, finite, finite), max_size=2).map(tuple),
    body_tokens=counts,
    prompt_tokens=counts,
    sent=st.builds(
        Sent, form=st.just("chat"), prefix=st.just("prefill"), characters=counts, digest=words,
        decoding=st.dictionaries(words, st.none() | counts | words | st.booleans(), max_size=2),
    ),
    outcome=completions | failures,
    receipt=st.builds(Receipt, ours=counts, theirs=maybe_counts),
    scores=st.dictionaries(words, st.builds(Score, value=st.floats(0, 1), answer=words), max_size=2),
    failure_class=st.sampled_from(["correct", "error", "empty"]),
    detail=words,
    other_value=words,
    attempts=st.integers(1, 9),
    started=finite,
    seconds=finite,
)  # fmt: skip


quickly = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@quickly
@given(records)
def test_a_record_comes_back_as_it_went(record: Record) -> None:
    assert codec.decode(codec.encode(record)) == record


@quickly
@given(records)
def test_a_record_is_one_line_of_plain_json(record: Record) -> None:
    line = codec.encode(record)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line)["cell"]["length"] == record.cell.length


@quickly
@given(st.text(alphabet=st.characters(), max_size=20), st.integers(0xD800, 0xDFFF))
def test_half_a_surrogate_pair_is_written_as_the_replacement_character(text: str, half: int) -> None:
    value = {"text": chr(half) + text}
    assert json.loads(codec.encode_pretty(value))["text"][0] == "�"
