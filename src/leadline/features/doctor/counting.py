"""Checks of token counts: tokenizer, receipts, rewritten text, prefix cache.

All but the last come from one experiment: texts of several kinds are sent, and the server's counts of them (receipts)
are compared with ours. The form of the difference says what is wrong: a constant is text that was added, a factor is
another way of counting, a difference for some kinds of text is another tokenizer or a rewritten text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from leadline.core.answers import Failure
from leadline.core.format import format_list
from leadline.core.types import NextToken
from leadline.features.doctor.examiner import LARGE_DIFFERENCE, CannotCheck, CheckReply, Examiner
from leadline.features.doctor.findings import Finding, Ok, Skipped
from leadline.features.doctor.texts import ALLOWANCE, COUNTED, LONG_ANSWERS, REWRITABLE, plant
from leadline.models.openai.template import ALLOWED_DIFFERENCE
from leadline.models.openai.tokenizer import ServerTokenizer
from leadline.results.server_advice import cache_advice
from leadline.stats.drift import token_drift

SCALE = 0.02
CACHE_TOKENS, HOSTED_TOKENS = 1024, 4608
"""Prompt tokens for the check of the prefix cache: hosted servers keep only prompts of at least 1,024 to 4,096."""
CACHE_SHARE = 0.5
FASTER, SLOW_SECONDS = 0.6, 0.5
"""Reading a cached text takes less than this share of the time. That shows only if reading takes longer than this."""
FEW = 8
"""Tokens of an answer that is ignored. With a single token a model that thinks may return no readable reply."""
CODE = "code"
COUNTED_ANSWER = 48
"""Tokens of the answer whose count is checked."""
NO_COUNTS = "the server reports no token counts (usage.prompt_tokens)"


@dataclass(frozen=True, slots=True)
class TextCount:
    """Tokens of one text: in the whole prompt by our count and by the receipt, and of the text alone."""

    name: str
    expected: int
    receipt: int | None
    ours: int
    tokenized: int | None
    """By the server's own /tokenize; None where it has none."""

    @property
    def difference(self) -> int:
        return (self.receipt or 0) - self.expected


def counts(examiner: Examiner) -> list[TextCount]:
    """Every text is sent once, for a few tokens of an answer."""
    examiner.need_server()
    names = ("prose", "four times the prose", "other scripts") if examiner.cheap else tuple(COUNTED)
    return [_count(examiner, name, COUNTED[name]) for name in names]


def rewritable_counts(examiner: Examiner) -> list[TextCount]:
    return [_count(examiner, name, text) for name, text in REWRITABLE.items()]


def _count(examiner: Examiner, name: str, text: str) -> TextCount:
    reply = examiner.ask(text, max_tokens=FEW)
    remote = remote_tokenizer(examiner)
    tokenized = None if remote is None else len(remote.encode(text))
    return TextCount(
        name, examiner.expected_tokens(text), reply.completion.prompt_tokens, examiner.count(text), tokenized
    )


def remote_tokenizer(examiner: Examiner) -> ServerTokenizer | None:
    server = examiner.need_server()
    return server.server_tokenizer() if server.server.kind != "plain" else None


@dataclass(frozen=True, slots=True)
class CountPattern:
    """How receipts differ from our counts."""

    has_receipts: bool
    constant: bool = False
    """The same receipt for texts of different lengths."""
    addition: int = 0
    """Tokens that every prompt has beyond ours."""
    scaled: float = 1.0
    """The receipt's tokens for one of ours, where the same factor holds for every kind of text."""
    odd: tuple[str, ...] = ()
    """Kinds of text that differ by more than the others."""
    tokenizes_differently: tuple[str, ...] = ()
    """Kinds of text that the server's own /tokenize counts differently from us."""
    respaced: bool = False
    """Only the code has another count: its white space was changed on the way."""

    @property
    def is_true(self) -> bool:
        """Whether a receipt says how many tokens were read."""
        return self.has_receipts and not self.constant and self.scaled == 1.0 and not self.odd and not self.respaced


def pattern(examiner: Examiner) -> CountPattern:
    text_counts = examiner.once(counts)
    apart = tuple(c.name for c in text_counts if c.tokenized is not None and c.tokenized != c.ours)
    if any(c.receipt is None for c in text_counts):
        return CountPattern(False, tokenizes_differently=apart)
    receipts = [c.receipt or 0 for c in text_counts]
    if len(set(receipts)) == 1:
        return CountPattern(True, constant=True, tokenizes_differently=apart)
    base, long = text_counts[0], text_counts[1]
    factor = (receipts[1] - receipts[0]) / (long.expected - base.expected)
    allowed = _allowed(examiner, text_counts)
    if abs(factor - 1) <= SCALE:
        odd = tuple(c.name for c in text_counts if abs(c.difference - base.difference) > allowed)
        if odd == (CODE,):
            return CountPattern(True, addition=base.difference, respaced=True, tokenizes_differently=apart)
        return CountPattern(True, addition=base.difference, odd=odd, tokenizes_differently=apart)
    added = receipts[0] - factor * base.expected
    fits = all(
        abs(r - added - factor * c.expected) <= max(2, SCALE * r) for r, c in zip(receipts, text_counts, strict=True)
    )
    odd = () if fits else tuple(c.name for c in text_counts if abs(c.difference) > allowed)
    return CountPattern(True, scaled=factor if fits else 1.0, odd=odd, tokenizes_differently=apart)


def _allowed(examiner: Examiner, text_counts: Sequence[TextCount]) -> int:
    """The tokens by which counts may differ: the ends of a text can merge with an unknown template."""
    frame = examiner.need_server().frame
    known = bool(frame.before or frame.after) and all(c.tokenized == c.ours for c in text_counts)
    return 0 if known else ALLOWED_DIFFERENCE


def _show(text_counts: Sequence[TextCount]) -> str:
    shown = (f"{c.name}: {c.expected:,} sent, {c.receipt:,} counted" for c in text_counts if c.receipt is not None)
    return "; ".join(shown)


# --- tokenizer, receipts


def check_tokenizer(examiner: Examiner) -> Ok | Finding | Skipped:
    fix = "give tokenizer=FOLDER with this model's tokenizer.json; the server may also have loaded another model"
    text_counts, seen = examiner.once(counts), examiner.once(pattern)
    if seen.tokenizes_differently:
        differing = next(c for c in text_counts if c.name == seen.tokenizes_differently[0])
        counted = (
            f"{differing.name} has {differing.ours} tokens here and {differing.tokenized} in the server's /tokenize"
        )
        return Finding(counted, fix)
    if not seen.has_receipts or seen.constant:
        return Skipped(NO_COUNTS if not seen.has_receipts else "the server's token counts are placeholders")
    if seen.odd:
        odd = [c for c in text_counts if c.name in (text_counts[0].name, *seen.odd)]
        where = "ours" if text_counts[0].tokenized is None else "that of its own /tokenize"
        return Finding(f"how much the server's count differs from {where} depends on the text: {_show(odd)}", fix)
    return Ok(f"{len(text_counts)} kinds of text have the same number of tokens here and there")


def check_receipts(examiner: Examiner) -> Ok | Finding | Skipped:
    fix = "do not trust prompt_tokens of this server: ask the operator, or bypass the gateway; lengths are ours"
    text_counts, seen = examiner.once(counts), examiner.once(pattern)
    if not seen.has_receipts:
        return Skipped(NO_COUNTS)
    if seen.constant:
        short, long = text_counts[:2]
        same = f"{short.expected:,} and {long.expected:,} tokens are both counted as {short.receipt:,}"
        return Finding(f"texts of {same}", fix)
    if abs(seen.scaled - 1) > SCALE:
        return Finding(f"every token is counted as {seen.scaled:.2f}: {_show(text_counts[:2])}", fix)
    problem = "" if examiner.cheap else _completion_problem(examiner.once(counted_answer), examiner)
    if problem:
        return Finding(problem, fix)
    return Ok("prompts and answers are counted as many tokens as they have")


def counted_answer(examiner: Examiner) -> CheckReply:
    examiner.need_server()
    return examiner.ask(LONG_ANSWERS["words"], max_tokens=COUNTED_ANSWER)


def _completion_problem(reply: CheckReply, examiner: Examiner) -> str:
    """What is wrong with the count of an answer; empty if nothing is."""
    cached, prompt = reply.completion.cached_tokens, reply.completion.prompt_tokens
    if cached is not None and prompt is not None and cached > prompt:
        return f"{cached:,} tokens of a prompt of {prompt:,} are said to come from a cache"
    counted, ours, seen = reply.completion.completion_tokens, examiner.count(reply.content), examiner.once(pattern)
    if counted is None or reply.thinks or seen.tokenizes_differently or seen.odd:
        return ""
    allowed = max(4, 0.3 * ours)
    hides_thinking = ours < counted <= COUNTED_ANSWER  # thinking that is not shown is counted too
    wrong = abs(counted - ours) > allowed and not hides_thinking
    return f"an answer of {ours} tokens is counted as {counted}" if wrong else ""


# --- text that a gateway changes


def rewritten_texts(examiner: Examiner) -> str:
    """Kinds of text that have other counts than the plain ones, as a sentence; empty if none."""
    seen = examiner.once(pattern)
    if not (seen.is_true or seen.respaced) or seen.tokenizes_differently:
        return ""
    text_counts = [*examiner.once(rewritable_counts), *(c for c in examiner.once(counts) if c.name == CODE)]
    allowed = _allowed(examiner, text_counts)
    odd = [c for c in text_counts if abs(c.difference - seen.addition) > allowed]
    return f"texts with {format_list([c.name for c in odd])} arrive changed: {_show(odd)}" if odd else ""


# --- prefix cache

CANDIDATES = 20
"""Likeliest tokens that are compared."""
CACHED_CUTS = (24, 16, 8, 0)
"""Tokens before the end of a prompt at which readings from the cache and fresh ones are compared."""
CACHED_KL = 0.05
"""Nats on average: rounding in another order gives a hundredth of it in float32, a tenth in four bits."""


def check_prefix_cache(examiner: Examiner) -> Ok | Finding | Skipped:
    """A text that was never sent, then the same text with another question."""
    server = examiner.need_server()
    cache = server.prefix_cache
    fix = f"{cache_advice(server.server.kind)}; or plan with --reading fresh"
    if cache.off:
        return Finding("the server states that its prefix cache is off", fix)
    enough = CACHE_TOKENS if cache.min_tokens <= 1 else HOSTED_TOKENS
    length = min(enough, examiner.longest or enough, examiner.model.card.window or enough)
    pairs, shared = [], length - 4 * ALLOWANCE
    for _ in range(2):
        planted = plant(examiner, length)
        first, second = (
            examiner.ask(planted.text(p), planted.prefix(p), max_tokens=FEW) for p in ("harbour", "museum")
        )
        pairs.append((first, second))
        if (second.completion.cached_tokens or 0) >= CACHE_SHARE * shared:
            break  # a second pair is for servers with several replicas, each with a cache of its own
    fresh = [first.completion.cached_tokens for first, _ in pairs]
    hits = [second.completion.cached_tokens for _, second in pairs]
    examiner.numbers["cached_tokens"] = hits[-1]
    if any((tokens or 0) > CACHE_SHARE * length for tokens in fresh):
        return Finding(f"{max(t or 0 for t in fresh):,} of {length:,} tokens of a text that was never sent before are "
                       "said to come from the cache", "do not trust cached_tokens of this server")  # fmt: skip
    if any((tokens or 0) >= CACHE_SHARE * shared for tokens in hits):
        return Ok(f"{max(t or 0 for t in hits):,} of {length:,} tokens of a repeated beginning came from the cache")
    if all(tokens is None for tokens in hits):
        ratio = min(second.seconds / first.seconds for first, second in pairs)
        if ratio < FASTER and min(first.seconds for first, _ in pairs) > SLOW_SECONDS:
            return Ok(f"a repeated beginning of {length:,} tokens takes {100 * ratio:.0f} % of the time (not counted)")
        return Skipped("the server does not report cached tokens (vLLM needs --enable-prompt-tokens-details, SGLang "
                       "--enable-cache-report), and the times of so short a text do not show it")  # fmt: skip
    return Finding(
        f"of a repeated beginning of {length:,} tokens {max(t or 0 for t in hits):,} came from the cache", fix
    )


def check_cached_answers(examiner: Examiner) -> Ok | Finding | Skipped:
    """The next tokens after a document that comes from the prefix cache, against a fresh reading of the same."""
    server = examiner.need_server()
    planted = plant(examiner, min(CACHE_TOKENS, examiner.longest or CACHE_TOKENS, server.card.window or CACHE_TOKENS))
    ids = planted.document.prompt_ids(planted.document.probes[0])
    cuts = [len(ids) - back for back in CACHED_CUTS]

    def after(*, fresh: bool = False) -> list[NextToken]:
        examiner.requests += len(cuts)
        next_tokens = server.next_tokens(ids, cuts, CANDIDATES, fresh=fresh)
        if isinstance(next_tokens, Failure):
            raise CannotCheck(f"cached and fresh readings cannot be compared: {next_tokens.message}")
        return next_tokens

    anew = after(fresh=True)
    after()  # fills the cache
    cached, again = after(), after()
    if max(token_drift(first, second).largest for first, second in zip(cached, again, strict=True)) > LARGE_DIFFERENCE:
        raise CannotCheck("two readings from the cache differ by as much: see `repeated requests` and `logprobs`")
    drifts = [token_drift(fresh_token, cached_token) for fresh_token, cached_token in zip(anew, cached, strict=True)]
    kl, largest = float(np.mean([drift.kl for drift in drifts])), max(drift.largest for drift in drifts)
    examiner.numbers["cached_kl"] = kl
    reused = max((token.cached or 0 for token in cached), default=0)
    what = (
        f"mean KL {kl:.2g} nats, largest difference {largest:.2g} nats at {len(cuts)} positions of {len(ids):,} tokens"
    )
    if kl > CACHED_KL or largest > LARGE_DIFFERENCE:
        return Finding(
            f"answers from the cache are not those of a fresh reading: {what}",
            "switch the prefix cache off, or update the server; until then use --reading fresh",
        )
    return Ok(f"{what}{f', {reused:,} from the cache' if reused else ''}")
