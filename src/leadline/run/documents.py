"""The grid as work: which cells there are, which of them share a document, and in what order documents are read."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice

from leadline.core.contracts import Task, Tokenizer
from leadline.core.drafts import Draft
from leadline.core.errors import LeadlineError, LengthError
from leadline.core.format import format_length
from leadline.core.memory import free_host_memory
from leadline.core.seeds import seed_of
from leadline.core.spec import Spec
from leadline.core.types import Cell, Cluster, Document
from leadline.run.allowance import first_allowances
from leadline.text.fitting import Fitter
from leadline.text.sources import LONG_SENTENCE, TextSource
from leadline.text.tokenizers import FileTokenizer

AHEAD_TOKENS = 65_536
"""Tokens of documents whose drafts are written together."""
MOST_COMPARED = 4000
"""Documents of a task that are compared for text in common."""
NOTED_OVERLAP = 0.01
LEAST_BYTES = 110
"""The least memory for each token of a document while it is built; measured at 4m and 16m."""
LEAST_BYTES_IN_FILE_TOKENIZER = 240
"""The same with a tokenizer.json, whose library needs more while the first document is tokenised whole."""
TRIED_LENGTHS = 24
TRIED_DOCUMENTS = 16
"""The lengths that are tried for one that can hold a document, and the documents at each."""


@dataclass(frozen=True, slots=True)
class PlannedDocument:
    """One document to make, and which of its cells are still to be asked.

    The document always has all its cells, whichever are missing: a resumed run must send the same bytes.
    """

    task: Task
    cells: tuple[Cell, ...]
    missing: tuple[Cell, ...]
    draft: Draft | None = None
    """Its draft, if the task wrote it ahead of time."""

    def document(self, seed: int, fitter: Fitter) -> Document:
        if self.draft is not None:
            return fitter.fit(self.draft)
        return self.task.document(self.cells, seed=seed, fitter=fitter)

    def document_or_failures(self, seed: int, fitter: Fitter) -> Document:
        """The document; one whose samples fail without being asked where no text has its length."""
        try:
            return self.document(seed, fitter)
        except LengthError as error:
            return fitter.unbuilt(self.draft or self.task.write(self.cells, seed=seed), error)


def cells_of(spec: Spec, tasks: Mapping[str, Task]) -> Iterator[Cell]:
    """Every cell the spec asks for."""
    for planned in planned_documents(spec, tasks):
        yield from planned.cells


def count_cells(spec: Spec, tasks: Mapping[str, Task]) -> int:
    places = (len(depths_of(spec, task, n)) * samples_of(spec, task) for task in tasks.values() for n in spec.lengths)
    return sum(places)


def samples_of(spec: Spec, task: Task) -> int:
    """Samples per cell: as many as asked for, or as there are."""
    most = task.max_samples()
    return spec.samples if most is None else min(spec.samples, most)


def depths_of(spec: Spec, task: Task, length: int = 1) -> tuple[float | None, ...]:
    """At this length. Length 0 has no document, and so no depth."""
    return spec.depths if task.has_depth and length else (None,)


def planned_documents(spec: Spec, tasks: Mapping[str, Task], done: Container[str] = ()) -> Iterator[PlannedDocument]:
    """Documents with missing cells, longest first, so that running out of memory happens early."""
    for task, cells in _documents(spec, tasks):
        missing = tuple(c for c in cells if c.key not in done)
        if missing:
            yield PlannedDocument(task, cells, missing)


def documents_fit(spec: Spec, tasks: Mapping[str, Task], fitter: Fitter, length: int, extra: int) -> bool:
    """Whether all documents of a length can be made with this extra allowance. Facts and questions differ in length, so
    the first document is no proof for the others."""
    before = fitter.extra_allowance
    fitter.extra_allowance = {**before, length: extra}
    try:
        for planned in planned_documents(spec, tasks):
            if any(cell.length == length for cell in planned.cells):
                planned.document(spec.seed, fitter)
    except LengthError:
        return False
    finally:
        fitter.extra_allowance = before
    return True


def check_memory(spec: Spec, tasks: Mapping[str, Task], tokenizer: Tokenizer) -> None:
    """Raises if the longest document is surely too large for the free memory. Published texts have a size of their own,
    and a question without its document is short."""
    free, longest = free_host_memory(), max(spec.lengths)
    each = LEAST_BYTES_IN_FILE_TOKENIZER if isinstance(tokenizer, FileTokenizer) else LEAST_BYTES
    if free is None or longest * each <= free:
        return
    if all(task.no_context or task.max_samples() is not None for task in tasks.values()):
        return
    fits, unit = free // each, 1 << 20 if free // each >= 1 << 20 else 1 << 10
    raise LengthError(
        f"a document of {longest:,} tokens needs at least {longest * each / 2**30:,.1f} GiB of memory while it is "
        f"built, and {free / 2**30:,.1f} GiB are free",
        where="lengths",
        fix=f"leave out lengths above {format_length(fits // unit * unit)}",
    )


def with_possible_length(error: LengthError, spec: Spec, title: str, task: Task, fitter: Fitter) -> LengthError:
    """The same error with a shortest length at which some documents of the run were really made.

    The first estimate is often too short: white space around facts is not in it, and a task may write a longer example
    or more facts for a longer length.
    """
    if error.shortest is None or spec.reading == "nested":
        return error
    before, length = fitter.extra_allowance, error.shortest
    try:
        for _ in range(TRIED_LENGTHS):
            length = _rounded_up(length)
            fitter.extra_allowance = first_allowances(spec.allowance, [length])
            planned = planned_documents(spec.model_copy(update={"lengths": (length,)}), {title: task})
            try:
                for smaller in islice(planned, TRIED_DOCUMENTS):
                    smaller.document(spec.seed, fitter)
            except LengthError as other:
                length = max(length + 1, other.shortest or 0)
            else:
                extra = fitter.extra_allowance.get(length)
                rest = f"{extra:,} of them for thinking (--allowance)" if extra else "fewer depths or facts need less"
                fix = f"the shortest length that can hold it is about {length:,}; {rest}"
                return LengthError(error.what, where=error.where, fix=fix, shortest=length)
    finally:
        fitter.extra_allowance = before
    return error


def _rounded_up(tokens: int) -> int:
    """To two digits: 1,305 becomes 1,400."""
    step: int = 10 ** max(len(str(tokens)) - 2, 0)
    return -(-tokens // step) * step


def with_drafts(todo: Iterable[PlannedDocument], seed: int) -> Iterator[PlannedDocument]:
    """The same documents with drafts of some short ones written ahead: generated text is then drawn for all of them at
    once. A draft that cannot be written is tried again in its turn, which raises the error."""
    waiting: list[PlannedDocument] = []
    tokens = 0
    for planned in todo:
        length = planned.cells[-1].length
        if waiting and tokens + length > AHEAD_TOKENS:
            yield from _with_drafts(waiting, seed)
            waiting, tokens = [], 0
        waiting.append(planned)
        tokens += length
    yield from _with_drafts(waiting, seed)


def _with_drafts(some: Sequence[PlannedDocument], seed: int) -> list[PlannedDocument]:
    if len(some) < 2:
        return list(some)
    with_draft = []
    for planned in some:
        draft = None
        if type(planned.task).document is Task.document:
            with suppress(LeadlineError):
                draft = planned.task.write(planned.cells, seed=seed)
        with_draft.append(replace(planned, draft=draft))
    return with_draft


def _documents(spec: Spec, tasks: Mapping[str, Task]) -> Iterator[tuple[Task, tuple[Cell, ...]]]:
    """By length, then task, then haystack: documents that begin alike follow each other, for a server's prefix cache.

    The deepest fact comes first: its document is unchanged haystack for the longest, and the next ones share that.
    """
    if spec.reading == "nested":
        for title, task in tasks.items():
            for samples in _groups(spec, task):
                yield task, _row(spec, title, task, spec.lengths, samples)
        return
    for length in sorted(spec.lengths, reverse=True):
        for title, task in tasks.items():
            for samples in _groups(spec, task):
                cells = _row(spec, title, task, (length,), samples)
                if spec.reading == "shared" or task.depth_independent:
                    yield task, cells
                else:
                    for cell in reversed(cells):
                        yield task, (cell,)


def first_rows(spec: Spec, title: str, task: Task) -> list[tuple[Cell, ...]]:
    """The cells of one document of each size, shortest first: those that are built before the run."""
    if spec.reading == "nested":
        return [_row(spec, title, task, spec.lengths, next(_groups(spec, task)))]
    rows = [_row(spec, title, task, (length,), next(_groups(spec, task))) for length in spec.lengths]
    return rows if spec.reading == "shared" or task.depth_independent else [row[:1] for row in rows]


def count_documents(spec: Spec, task: Task) -> int:
    """Documents of one length in shared and nested reading."""
    return sum(1 for _ in _groups(spec, task))


def _groups(spec: Spec, task: Task) -> Iterator[range]:
    """The samples that have a document in common."""
    samples = samples_of(spec, task)
    size = 1 if spec.reading == "fresh" else task.samples_per_document
    for first in range(0, samples, size):
        yield range(first, min(first + size, samples))


def _row(spec: Spec, title: str, task: Task, lengths: Sequence[int], samples: range) -> tuple[Cell, ...]:
    return tuple(
        Cell(title, length, depth, sample)
        for length in lengths
        for depth in depths_of(spec, task, length)
        for sample in samples
    )


NOTED_SENTENCES = 0.1


def sentence_notes(tasks: Mapping[str, Task]) -> tuple[str, ...]:
    """A note for each text of the user's with sentences so long that facts are planted inside them."""
    sources = {s.name: s for task in tasks.values() for s in task.sources() if isinstance(s, TextSource)}
    shares = {name: source.long_sentences for name, source in sources.items()}
    return tuple(
        f"{100 * share:.0f} % of {name} is in sentences of more than {LONG_SENTENCE} characters (no full stops, or "
        "lower case after them): facts stand inside them, at other punctuation or between words"
        for name, share in shares.items()
        if share >= NOTED_SENTENCES
    )


def overlap_notes(
    spec: Spec, tasks: Mapping[str, Task], built: Mapping[str, Sequence[Document]], fitter: Fitter
) -> tuple[str, ...]:
    """For each task whose text is too short for all documents, the share that its documents have in common at the worst
    length."""
    notes = []
    for title, task in tasks.items():
        sources = [s for s in task.sources() if isinstance(s, TextSource) and not s.repeat]
        if not sources or task.no_context:
            continue
        source, beside = sources[0], min(p.cell.length - p.body_tokens for d in built[title] for p in d.probes)
        clusters: dict[int, dict[Cluster, None]] = {}
        for planned in islice(planned_documents(spec, {title: task}), MOST_COMPARED):
            longest = max(c.length for c in planned.cells)
            if longest:
                clusters.setdefault(longest, {}).setdefault(task.cluster(planned.cells))
        seed = spec.seed if task.split == "test" else seed_of(spec.seed, task.split)
        shares, tokens = [], 0
        for length, of_length in clusters.items():
            starts, ends = fitter.starts(source.stretch(cluster, seed, length) for cluster in of_length)
            shares.append((source.overlap(starts, ends, length - beside), length))
            tokens = int(ends[-1])
        share, length = max(shares)
        if share >= NOTED_OVERLAP:
            notes.append(
                f"{title}: at {format_length(length)}, {100 * share:.0f} % of the text of a document is also in "
                f"another one, as {source.name} has about {tokens:,} tokens"
            )
    return tuple(notes)
