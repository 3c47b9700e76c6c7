"""Checks of what is around the user's text: the chat template, a doubled beginning of text, a hidden system prompt.

Tokens that every prompt has beyond its template were added on the way. Where the counts show nothing, the same prompt
is sent as messages and as the token ids that the template makes of it: the answers must be equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from leadline.core.contracts import LogprobModel, Model
from leadline.core.errors import LeadlineError
from leadline.features.doctor.counting import NO_COUNTS, pattern, remote_tokenizer
from leadline.features.doctor.examiner import (
    LARGE_DIFFERENCE,
    TINY_DIFFERENCE,
    CannotCheck,
    CheckReply,
    Examiner,
    logprob_difference,
)
from leadline.features.doctor.findings import Finding, Ok, Skipped
from leadline.features.doctor.texts import LEAKS, PROSE

SMALL_ADDITION = 8
"""Tokens: a system prompt has more, another template or a second BOS has fewer."""
UNKNOWN_TEMPLATE = 64
"""Tokens that templates with their default system texts may add, where the template is not known."""
COMMON_WORDS = 6
_INSTRUCTION = re.compile(r"\b(you are|you're|your (name|role|task|job)|always|never|must|do not)\b", re.IGNORECASE)
_DENIAL = re.compile(r"\b(I|I'm|I am|sorry|can't|cannot|nothing|no text|no previous)\b")


@dataclass(frozen=True, slots=True)
class TemplateComparison:
    """The same prompt as messages, and as the token ids that the template makes of it."""

    differs: bool
    evidence: str


def templates_compared(examiner: Examiner) -> TemplateComparison:
    """Whether the chat endpoint reads the text of the server's template. Raises CannotCheck if that is unknown."""
    server = examiner.need_server()
    frame = server.frame
    if frame.form != "chat" or not (frame.before or frame.after):
        raise CannotCheck("the server does not show its chat template")
    fields = examiner.logprob_fields or {}
    ids = server.tokenizer.encode(frame.before + PROSE + frame.after).tolist()
    chat = examiner.ask(PROSE, max_tokens=12, **fields)
    numeric = {"logprobs": fields["top_logprobs"]} if fields else {}
    plain = examiner.note(server.exchange(ids, fields={"max_tokens": 12, **numeric}))
    again = examiner.ask(PROSE, max_tokens=12, **fields)
    if not isinstance(plain, CheckReply) or chat.thinks:
        raise CannotCheck("the server answers no completion of token ids to compare the chat with")
    apart, noise = logprob_difference(chat, plain), logprob_difference(chat, again)
    if (noise or 0.0) > LARGE_DIFFERENCE or (noise is None and chat.text != again.text):
        raise CannotCheck("the same messages are answered differently: nothing can be compared with them")
    if apart is not None:
        differs = apart > max(TINY_DIFFERENCE, 2 * (noise or 0.0))
        return TemplateComparison(differs, f"log-probabilities of the answer's first tokens differ by {apart:.2g} nats")
    differs = chat.text.split()[:4] != plain.text.split()[:4]
    return TemplateComparison(differs, f"the answers begin with {chat.text[:40]!r} and {plain.text[:40]!r}")


def _template_differs(examiner: Examiner) -> TemplateComparison | None:
    if examiner.cheap:
        return None
    try:
        return examiner.once(templates_compared)
    except CannotCheck:
        return None


def check_template(examiner: Examiner) -> Ok | Finding | Skipped:
    if examiner.server is None:
        return _check_own_template(examiner.model)
    server = examiner.server
    frame, seen = server.frame, examiner.once(pattern)
    fix = "start the server with the model's own chat template, or give template=FOLDER if it is that of the server"
    twice = _doubled_bos(examiner)
    if twice:
        return Finding(
            twice, "remove the beginning-of-text token from the template, or add_special_tokens from the server"
        )
    if seen.tokenizes_differently or seen.odd:
        return Skipped("the tokenizer is not the server's, so the tokens of a template cannot be compared")
    if server.server.kind in ("vllm", "llamacpp") and frame.form == "chat" and not (frame.before or frame.after):
        return Finding("the text that the server renders for a chat has other tokens than the server reads", fix)
    known, added = bool(frame.before or frame.after), _addition(examiner)
    if seen.has_receipts and not seen.constant and known and added and abs(added) <= SMALL_ADDITION:
        bos = _bos(examiner)
        if bos and added == len(bos):
            return Finding(f"every prompt has {added} tokens more than its template: the beginning-of-text token is "
                           "read twice", "remove it from the template, or stop the server from adding it")  # fmt: skip
        return Finding(f"every prompt has {added:+} tokens against the template {frame.fingerprint[:8]}", fix)
    if known and added < -SMALL_ADDITION:
        return Finding(f"every prompt has {-added} tokens fewer than the template makes of it", fix)
    compared = _template_differs(examiner)
    if compared is not None and compared.differs and not _leaked(examiner) and added <= SMALL_ADDITION:
        return Finding(f"as messages a prompt is answered differently than as its template writes it: "
                       f"{compared.evidence}", fix)  # fmt: skip
    if not known and frame.form == "chat":
        return Skipped("the server does not show its chat template; give template=FOLDER to compare with")
    return Ok("prompts have exactly the tokens of the template" + (f"; {compared.evidence}" if compared else ""))


def _check_own_template(model: Model) -> Ok | Finding | Skipped:
    """Of a model in this process: the text that we put around a turn ourselves."""
    bos = model.plain.before if isinstance(model, LogprobModel) else ""
    if model.frame.form != "chat" or not bos:
        return Skipped("no chat template or no beginning-of-text token is used")
    if model.frame.before.startswith(2 * bos):
        return Finding(
            f"the template begins with {model.frame.before[:40]!r}: {bos!r} is there twice", "give template=FILE"
        )
    return Ok(f"the template begins with {model.frame.before[:40]!r}")


def _addition(examiner: Examiner) -> int:
    """Tokens that every prompt has beyond its template, as measured when the model was opened or now."""
    frame, seen = examiner.need_server().frame, examiner.once(pattern)
    return seen.addition + frame.extra_tokens


def _bos(examiner: Examiner) -> list[int]:
    """The tokens that the server puts before a text; empty where it puts none or does not say."""
    remote = remote_tokenizer(examiner)
    if remote is None:
        return []
    try:
        return remote.added_ids("a")
    except LeadlineError:
        return []


def _doubled_bos(examiner: Examiner) -> str:
    """Whether the server's own rendering begins with two beginning-of-text tokens, as a sentence."""
    server, bos = examiner.need_server(), _bos(examiner)
    if not bos or server.frame.form != "chat":
        return ""
    ids = server.tokenizer.encode(server.frame.before).tolist()
    if ids[: 2 * len(bos)] == bos * 2:
        return f"the template begins with {server.frame.before[:40]!r}: the beginning-of-text token is there twice"
    return ""


def check_system_prompt(examiner: Examiner) -> Ok | Finding | Skipped:
    fix = "ask the operator to remove it, or use an endpoint without it; its tokens are part of every prompt"
    server = examiner.need_server()
    frame, seen = server.frame, examiner.once(pattern)
    known, added = bool(frame.before or frame.after), _addition(examiner)
    limit = SMALL_ADDITION if known or frame.form == "completion" else UNKNOWN_TEMPLATE
    if added > limit and (seen.is_true or seen.respaced) and not seen.tokenizes_differently:
        leaked = _leaked(examiner)
        quoted = f"; asked for it, the model answers {leaked[:120]!r}" if leaked else ""
        return Finding(f"every prompt has {added} tokens that we did not send{quoted}", fix)
    compared = _template_differs(examiner)
    if (not known or (compared is not None and compared.differs)) and (leaked := _leaked(examiner)):
        return Finding(f"asked for the text before its message, the model answers twice {leaked[:160]!r}", fix)
    if not seen.has_receipts or seen.constant:
        return Skipped(NO_COUNTS) if not known or compared is None else Ok(compared.evidence)
    text = f"the template adds {frame.system[:60]!r}" if frame.system else "no system text is added"
    return Ok(text if known else f"the server adds {added} tokens to every prompt, as a template does")


def leaks(examiner: Examiner) -> list[CheckReply]:
    return [examiner.ask(text, max_tokens=96) for text in LEAKS]


def _leaked(examiner: Examiner) -> str:
    """The common text of the answers to two different requests for the hidden text, if it is neither ours nor the
    template's."""
    if examiner.cheap:
        return ""
    first, second = (reply.text.split() for reply in examiner.once(leaks))
    frame = examiner.need_server().frame
    known = f"{frame.before} {' '.join(LEAKS)}"
    best: list[str] = []
    for start in range(len(first)):
        stop = start + len(best) + 1
        while stop <= len(first) and _holds(second, first[start:stop]):
            best, stop = first[start:stop], stop + 1
    text = " ".join(best)
    instructs = _INSTRUCTION.search(text) is not None and _DENIAL.search(text) is None
    return text if len(best) >= COMMON_WORDS and instructs and text not in known else ""


def _holds(words: list[str], part: list[str]) -> bool:
    return any(words[i : i + len(part)] == part for i in range(len(words) - len(part) + 1))
