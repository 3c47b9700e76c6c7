"""From a draft to a document of exactly the asked length: not a token more or less, or a LengthError.

    Fitter.fit          checks, and verifies some documents whole; published texts and conversations are below
    DocumentSearch      search.py: fills the document stretch by stretch, one for each asked length
    StretchWriter       layout.py: whole pieces between the facts, one cut piece for the rest (cuts.py)
    PieceOrder          order.py: the order of pieces with their tokens
    Assembly            assembly.py: the growing text with its exact tokens
    CountedBank         bank.py: the haystack's pieces with their tokens, and which of them can be joined
    ContextTokenizer    joints.py: tokens of a text that other text surrounds

Counting is by the real tokenisation throughout. Where a joint makes a token more or less, the cut piece is made shorter
or longer. The search is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from leadline.core.answers import Failure, FailureKind
from leadline.core.contracts import Tokenizer
from leadline.core.drafts import EXTRA_ALLOWANCE, Composer, Draft, DraftQuestion, Filler, PieceBank
from leadline.core.errors import UNBUILT, LengthError, TokenizerError, UsageError
from leadline.core.format import format_list
from leadline.core.seeds import digest
from leadline.core.turns import ENDS, PLAIN_TURNS, Turns, stripped
from leadline.core.types import Document, Frame, Match, Probe, Tool
from leadline.text.chat import NO_TOOLS_FIX, tools_as_text
from leadline.text.corpora import Corpus, CorpusTokens
from leadline.text.fillers import ShuffledFiller, Stretch
from leadline.text.fitting.assembly import common_start, make_probe, prompt_suffix
from leadline.text.fitting.bank import CountedBank, count_bank
from leadline.text.fitting.counted import ProviderCounts
from leadline.text.fitting.joints import ContextTokenizer
from leadline.text.fitting.search import search_document

if TYPE_CHECKING:
    from leadline.core.types import Indices

CHECKED_TOKENS = 8192
"""Longer documents are verified only once for each bank."""
MOST_CORPORA = 8
RECUTS = 16
"""The number of times that a text is cut shorter if its halves have more tokens together than apart."""


class Fitter:
    """Makes the documents of one model, in its tokenizer and its frame. Owns all caches of tokens.

    `plain` is the frame of a text without a chat template, for models that give log-probabilities.
    """

    def __init__(
        self, tokenizer: Tokenizer, frame: Frame, plain: Frame | None = None, raw_frame: Frame | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.frame = frame
        self.plain = plain
        self.raw_frame = raw_frame
        self.depths: tuple[float, ...] = ()
        """Those the run began with, which share a text so that no two documents have the same stretch of it."""
        self.added_depths: tuple[float, ...] = ()
        """And those it was extended by."""
        self.extra_allowance: dict[int, int] = {}
        """By length: tokens for the thinking of a model, beyond the allowance of its answer."""
        self.declare_tools: Callable[[Sequence[Tool]], Frame] | None = None
        """How the model declares tools; None if it has no way."""
        self.provider_counts: ProviderCounts | None = None
        """The provider's counts of prompts, where its tokenizer is not known here."""
        self.kept_reader = ""
        """The reader of compacted sessions that the model can use, if they are no text."""
        self.tools_note = ""
        """That tools are declared in the text and why, where a draft left that to the model."""
        self._tool_frames: dict[str, Frame | TokenizerError] = {}
        self._context = ContextTokenizer(tokenizer)
        self._banks: dict[str, CountedBank] = {}
        self._corpora: dict[tuple[str, str, int, int, int], CorpusTokens] = {}
        self._lock = threading.Lock()

    def fit(self, draft: Draft) -> Document:
        """The draft as a document of its exact length. A draft without filler is used verbatim."""
        if draft.kept is not None and draft.kept.reader != self.kept_reader:
            raise UsageError(
                f"only {draft.kept.reader} can read what its own compaction retained",
                where=draft.id,
                fix="give the tested model as compactor_model too",
            )
        undeclared = self._undeclared(draft) if draft.tools and draft.declare == "auto" else ""
        if draft.tools and (draft.declare == "text" or undeclared):
            draft = replace(draft, head=tools_as_text(draft.tools) + draft.head, tools=())
        if self.provider_counts is None:
            document = self._with_tools(draft)
        else:
            document = self.provider_counts.fit(draft, self._with_tools, self.extra_allowance)
        if not undeclared:
            return document
        self.tools_note = f"tools are declared in the text: {undeclared}"
        probes = tuple(replace(probe, notes=(*probe.notes, self.tools_note)) for probe in document.probes)
        return replace(document, probes=probes)

    def _undeclared(self, draft: Draft) -> str:
        """The reason why the chat template cannot declare the tools of a draft; empty if it can."""
        try:
            with self._lock:
                self._tool_frame(draft)
        except TokenizerError as error:
            return error.what
        return ""

    def _with_tools(self, draft: Draft) -> Document:
        document = self._fit(draft)
        if not draft.tools and draft.kept is None:
            return document
        return replace(document, tools=draft.tools, kept=draft.kept)

    def _fit(self, draft: Draft) -> Document:
        if self.extra_allowance:
            draft = replace(draft, questions=tuple(map(self._with_thinking, draft.questions)))
        with self._lock:
            filler = draft.filler
            if filler is None and draft.conversation:
                return verbatim_conversation(draft, self.tokenizer, self._frame_for(draft).for_conversation(draft.id))
            if filler is None:
                return verbatim_document(draft, self.tokenizer, self._frame_for(draft))
            draft = replace(draft, questions=tuple(map(self._with_enough_tokens, draft.questions)))
            if draft.conversation:
                return self._fitted_conversation(draft, filler)
            counted = self._bank(filler)
            if isinstance(filler, Stretch | ShuffledFiller):
                filler = filler.placed(counted.starts, self.depths, self.added_depths)
            return self._fitted(replace(draft, filler=filler), counted, self._frame_for(draft))

    def unbuilt(self, draft: Draft, error: LengthError) -> Document:
        """In place of a document that cannot be built: no text, and probes that fail without being asked."""
        questions = tuple(
            msgspec.structs.replace(question, count_targets=None, count_mistakes=None, mistakes={}, facts=())
            for question in draft.questions
        )
        empty = replace(draft, head="", filler=None, facts=(), questions=questions, conversation=False, tools=())
        with self._lock:
            document = verbatim_document(empty, self.tokenizer, self._frame_for(empty))
        failure = Failure("context_length", f"{UNBUILT}: {error.what}")
        return replace(document, probes=tuple(replace(probe, not_asked=failure) for probe in document.probes))

    def _fitted_conversation(self, draft: Draft, filler: Filler | Composer) -> Document:
        """A conversation as a body whose pieces are turns, as the chat template writes them."""
        frame = self._frame_for(draft).for_conversation(draft.id)
        counted = self._bank(filler, frame)
        return replace(self._fitted(rendered_draft(draft, frame), counted, frame), conversation=True)

    def starts(self, stretches: Iterable[Stretch]) -> tuple[list[int], Indices]:
        """The first pieces of stretches of one text, and the tokens before each of its pieces and in all."""
        some = list(stretches)
        with self._lock:
            ends = self._bank(some[0]).starts
        return [stretch.placed(ends, self.depths, self.added_depths).start for stretch in some], ends

    def share_text(self, depths: Sequence[float], added: Sequence[float] = ()) -> None:
        """Sets the depths of the run: all of them, and those of them that it was extended by."""
        self.depths, self.added_depths = tuple(d for d in depths if d not in added), tuple(added)

    def answer_tokens(self, targets: Sequence[str], match: Match) -> int:
        """Tokens of a right answer: all targets in a list, or the shortest where any one will do, and an end token."""
        if not targets:
            return 0
        text = f" {format_list(targets)}." if match == "all" else f" {min(targets, key=len)}."
        return len(self.tokenizer.encode(text)) + 1

    def _with_thinking(self, question: DraftQuestion) -> DraftQuestion:
        """The question with room for thinking, in addition to what its answer needs in this tokenizer."""
        extra = self.extra_allowance.get(question.cell.length, 0)
        enough = self._with_enough_tokens(question)
        labels = {**question.labels, EXTRA_ALLOWANCE: str(extra)}
        return msgspec.structs.replace(enough, allowance=enough.allowance + extra, labels=labels)

    def _with_enough_tokens(self, question: DraftQuestion) -> DraftQuestion:
        """The question with an allowance that is enough for its answer in this tokenizer, unless it is fixed."""
        if question.fixed_allowance or question.count_targets is not None:
            return question
        targets = question.targets
        if sum(len(t.encode()) + 2 for t in targets) + 8 <= question.allowance:  # enough in any tokenizer
            return question
        needed = self.answer_tokens(targets, question.match)
        return question if needed <= question.allowance else msgspec.structs.replace(question, allowance=needed)

    def _frame_for(self, draft: Draft) -> Frame:
        if draft.tools:
            return self._tool_frame(draft)
        return self.frame if draft.templated else self.raw_frame or self.frame

    def _tool_frame(self, draft: Draft) -> Frame:
        key = digest([dict(tool) for tool in draft.tools])
        if key not in self._tool_frames:
            try:
                self._tool_frames[key] = self._declared(draft)
            except TokenizerError as error:
                self._tool_frames[key] = error
        frame = self._tool_frames[key]
        if isinstance(frame, TokenizerError):
            raise frame.with_traceback(None)
        return frame

    def _declared(self, draft: Draft) -> Frame:
        if self.frame.form == "completion":
            raise TokenizerError("a completion has no chat template to declare tools", where=draft.id, fix=NO_TOOLS_FIX)
        if self.declare_tools is None:
            raise TokenizerError("this model declares no tools", where=draft.id, fix=NO_TOOLS_FIX)
        return self.declare_tools(draft.tools)

    def corpus(self, corpus: Corpus, *, least: int, most: int, seed: int) -> CorpusTokens:
        """The documents of a corpus in tokens; of those with `least` tokens or more the first `most`."""
        if self.plain is None:
            raise TokenizerError("this model has no frame for plain text", where=corpus.name)
        key = (corpus.name, corpus.digest, least, most, seed)
        with self._lock:
            if key not in self._corpora:
                if len(self._corpora) >= MOST_CORPORA:
                    del self._corpora[next(iter(self._corpora))]
                self._corpora[key] = CorpusTokens(corpus, self.tokenizer, self.plain, least=least, most=most, seed=seed)
            return self._corpora[key]

    def _bank(self, filler: Filler | Composer, turns: Frame | None = None) -> CountedBank:
        """The counted pieces; as `turns` writes them if they are those of a conversation."""
        key = f"{filler.bank.digest} {turns.fingerprint}" if turns else filler.bank.digest
        if key not in self._banks:
            self._banks[key] = count_bank(rendered_bank(filler.bank, turns) if turns else filler.bank, self._context)
        return self._banks[key]

    def _fitted(self, draft: Draft, counted: CountedBank, frame: Frame) -> Document:
        document = search_document(draft, counted, frame)
        counted.documents += 1
        if self._is_checked(counted.documents, document) and not self._is_exact(document):
            counted.distrust_joints = True
            document = search_document(draft, counted, frame)
            if not self._is_exact(document):
                raise TokenizerError(
                    "this tokenizer gives a whole prompt other tokens than its parts, so lengths cannot be promised",
                    where=f"{draft.id} in {self.tokenizer.fingerprint}",
                    fix="use the model's own tokenizer.json, or tokenizer=server",
                )
        return document

    @staticmethod
    def _is_checked(number: int, document: Document) -> bool:
        """The first document of a bank is verified, and of short ones the 2nd, 4th, 8th ... too. Verifying a long
        document takes longer than making it, and a server's own count verifies every one of them."""
        return number == 1 or (number & (number - 1) == 0 and len(document.ids) <= CHECKED_TOKENS)

    def _is_exact(self, document: Document) -> bool:
        """Whether the longest prompt, tokenised whole, has the tokens of the document."""
        probe = max(document.probes, key=lambda p: p.prompt_tokens)
        [ids] = self.tokenizer.encode_batch([document.prompt_text(probe)])  # faster than `encode`: no offsets
        return np.array_equal(ids, document.prompt_ids(probe))


# --- texts that are sent as they are: counted, and cut to a limit where the draft says so


def verbatim_document(draft: Draft, tokenizer: Tokenizer, frame: Frame) -> Document:
    """The head of a draft and its questions, with nothing between them. `draft.on_overflow` decides about long ones."""
    probes = []
    for question in draft.questions:
        probe = _verbatim_probe(draft, question, tokenizer, frame)
        limit = question.cell.length - question.allowance
        if draft.on_overflow != "send" and probe.prompt_tokens > limit:
            if draft.on_overflow == "middle":
                draft, question = cut_middle(draft, question, limit, tokenizer, frame)
                probe = _verbatim_probe(draft, question, tokenizer, frame)
            else:
                kind: FailureKind = "left_out" if draft.on_overflow == "drop" else "context_length"
                problem = f"the prompt has {probe.prompt_tokens:,} tokens and {limit:,} are allowed"
                probe = replace(probe, not_asked=Failure(kind, problem))
        probes.append(probe)
    text = frame.before + draft.head
    ids = tokenizer.encode(text)
    return Document(
        id=draft.id,
        cluster=draft.cluster,
        frame=frame,
        text=text,
        tokens=ids,
        body_start=min(len(tokenizer.encode(frame.before)), len(ids)),
        body_start_characters=len(frame.before),
        facts=(),
        probes=tuple(probes),
    )


def _verbatim_probe(draft: Draft, question: DraftQuestion, tokenizer: Tokenizer, frame: Frame) -> Probe:
    text = frame.before + draft.head
    ids, start = tokenizer.encode(text), len(tokenizer.encode(frame.before))
    user_suffix, suffix = prompt_suffix(question, frame)
    prompt = tokenizer.encode(text + suffix)
    cut = min(common_start(ids, prompt), len(prompt) - 1)
    return make_probe(
        question, text, user_suffix, prompt[cut:], cut=cut, cut_characters=len(text), body=len(frame.before),
        prompt_tokens=len(prompt) + frame.extra_tokens + question.correction, body_tokens=max(len(ids) - start, 0),
    )  # fmt: skip


def cut_middle(
    draft: Draft, question: DraftQuestion, limit: int, tokenizer: Tokenizer, frame: Frame
) -> tuple[Draft, DraftQuestion]:
    """Without the middle of head and question together, so that the whole prompt has at most `limit` tokens.

    As many tokens are kept at the start as at the end, as LongBench and InfiniteBench do it.
    """
    text = draft.head + question.text
    before = _verbatim_probe(draft, question, tokenizer, frame).prompt_tokens
    keep = len(tokenizer.encode(text)) - (before - limit)
    for _ in range(RECUTS):
        if keep < 2:
            break
        start, stop = _halves(text, keep // 2, tokenizer)
        shorter, shorter_question = _without(draft, question, start, stop)
        tokens = _verbatim_probe(shorter, shorter_question, tokenizer, frame).prompt_tokens
        if tokens <= limit:
            labels = {**shorter_question.labels, "fit": "middle", "tokens_cut": str(before - tokens)}
            return shorter, msgspec.structs.replace(shorter_question, labels=labels)
        keep -= tokens - limit
    raise LengthError(
        f"the template alone leaves no room for the text in {limit:,} tokens", where=draft.id, fix="use a longer length"
    )


def _without(draft: Draft, question: DraftQuestion, start: int, stop: int) -> tuple[Draft, DraftQuestion]:
    """Head and question without the characters from `start` to `stop` of both together."""
    size = len(draft.head)
    head = draft.head[:start] + draft.head[stop:]
    question_text = question.text[: max(start - size, 0)] + question.text[max(stop - size, 0) :]
    return replace(draft, head=head), msgspec.structs.replace(question, text=question_text)


def _halves(text: str, half: int, tokenizer: Tokenizer) -> tuple[int, int]:
    """The characters after the first `half` tokens and before the last `half` tokens."""
    ends = tokenizer.ends(text)
    if ends is not None:
        return int(ends[half - 1]), int(ends[len(ends) - half - 1])
    return _most(text, half, tokenizer), len(text) - _most(text, half, tokenizer, at_end=True)


def _most(text: str, tokens: int, tokenizer: Tokenizer, *, at_end: bool = False) -> int:
    """The most characters at the start or the end of a text that have at most this number of tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        part = text[len(text) - middle :] if at_end else text[:middle]
        low, high = (middle, high) if len(tokenizer.encode(part)) <= tokens else (low, middle - 1)
    return low


# --- conversations: the turns of a draft as the chat template writes them, in a frame `for_conversation`


def rendered_draft(draft: Draft, frame: Frame) -> Draft:
    """The draft with the template's text at the boundaries of turns."""
    turns = _turns(frame)
    opening = turns.before if frame.form == "completion" else ""  # a chat template's is part of the frame
    return replace(
        draft,
        head=opening + turns.rendered(draft.head, draft.id),
        facts=tuple(replace(fact, text=turns.rendered(fact.text, draft.id)) for fact in draft.facts),
        questions=tuple(msgspec.structs.replace(q, text=_last_turn(q.text, turns, draft)) for q in draft.questions),
        shared_end=True,
    )


def verbatim_conversation(draft: Draft, tokenizer: Tokenizer, frame: Frame) -> Document:
    """A conversation that is sent as it is: its head has all turns before the question."""
    turns = _turns(frame)
    if turns.strips:
        draft = replace(
            draft,
            head=stripped(draft.head),
            questions=tuple(msgspec.structs.replace(q, text=stripped(q.text)) for q in draft.questions),
        )
    rendered = rendered_draft(draft, frame)
    opening = frame.before + (turns.before if frame.form == "completion" else "")
    document = replace(verbatim_document(rendered, tokenizer, frame), conversation=True)
    start = min(len(tokenizer.encode(opening)), len(document.ids))
    marks = sum(map(draft.head.count, ENDS))
    if any(len(document.turns(probe)) != marks + 1 for probe in document.probes):
        raise UsageError(
            "a text of this conversation has what the chat template writes between turns",
            where=draft.id,
            fix="leave this sample out, or use another template with template=FILE",
        )
    return replace(document, body_start=start, body_start_characters=len(opening))


def _last_turn(text: str, turns: Turns, draft: Draft) -> str:
    """The question as the last turn. Where it is the only one, the frame has the white space before it."""
    rendered = turns.rendered(text, draft.id)
    return rendered if draft.head or draft.filler is not None else rendered.lstrip()


def rendered_bank(bank: PieceBank, frame: Frame) -> PieceBank:
    """The pieces as the template writes them. A text must not have the template's own words for a turn."""
    turns = _turns(frame)
    marks, signs = turns.marks(), {text.strip() for _, _, text in turns.between}
    for piece in bank.pieces:
        if any(sign in piece for sign in signs):
            raise UsageError(
                f"a text of the haystack {bank.name!r} has what the chat template writes between turns",
                where=repr(piece[:60]),
                fix="use another haystack, or api=completions",
            )
    pieces = [piece.translate(marks) for piece in bank.pieces]
    return replace(bank, digest=digest([bank.digest, pieces]), pieces=pieces, has_own_spacing=True)


def _turns(frame: Frame) -> Turns:
    return frame.turns or PLAIN_TURNS
