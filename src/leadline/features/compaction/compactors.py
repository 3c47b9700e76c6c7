"""Compactors: from a session and a number of tokens to what is retained of it.

    none                     the session as it is: what the others are compared with
    compact:tail             its last lines, as many as fit
    compact:drop-tools       without the calls of tools and what they returned
    compact:prompt           a summary by a model (`compactor_model`), asked for by a stated prompt
    compact:provider         the provider's own compaction (of `compactor_model`): OpenAI's and Anthropic's
    ./mine.py:compact        a function of text and tokens that returns a text or messages; where its first parameter
                             is called `messages`, it gets the session as [{"role": ..., "content": ...}, ...]
    command="./mine.sh"      a program: the session on stdin, LEADLINE_TOKENS in its environment, what is kept on stdout

A compactor that fails, takes too long, returns nothing or more than it was given fails the samples of its session. A
program is ended with all that it started.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from leadline.core import registry
from leadline.core.answers import Completion, Failure
from leadline.core.contracts import CompactsSessions, Model, Tokenizer
from leadline.core.drafts import Draft, DraftQuestion
from leadline.core.errors import LeadlineError, UnknownName, UsageError
from leadline.core.seeds import digest_bytes
from leadline.core.types import Cell, KeptSession
from leadline.text.fitting import Fitter

NONE = "none"
PROMPTED, PROVIDER = "compact:prompt", "compact:provider"
AT_ONCE = (NONE, "compact:tail", "compact:drop-tools")
"""They wait for no model, program or function of the user's."""
BUILT_IN = (*AT_ONCE, PROMPTED, PROVIDER)
ERROR_CHARACTERS = 300
KEPT_RESULTS = 16
"""Results of models and programs that are kept: the plan asks for the first sessions of each task, the run for all."""
_SPEAKER = re.compile(r"(user|assistant|system): ")
_TOOL = re.compile(r'\{"tool"|\$ |tool: |> ')
PROMPT = (
    "Below is the session of an agent so far. Its context is nearly full. Write a summary of at most {tokens} tokens "
    "that replaces the session: keep every identifier, path, number, decision, standing instruction and open task "
    "exactly as it is written.\n\n{session}\n\nSummary:"
)


class CompactionFailed(Exception):
    """Nothing was retained. The message is the failure of the session's samples."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The retained text and the cost of compacting."""

    text: str
    tokens: int
    before: int
    """Tokens of the session."""
    seconds: float
    rounds: int
    read: int = 0
    """Tokens that the compactor's model read and wrote; 0 without a model."""
    written: int = 0
    kept: KeptSession | None = None
    """The retained items, if they are no text."""


@dataclass(frozen=True, slots=True)
class Compactor:
    """A compactor with the settings of a task."""

    name: str
    keep: int
    """Tokens that it may retain."""
    command: str = ""
    model: str = ""
    timeout: float = 600.0
    rounds: int = 1

    def compact(self, session: str, tokenizer: Tokenizer) -> Compacted:
        """What is retained of a session. A model or program is asked once for it, by the plan or by the run."""
        if self._asks_model or self.command:
            code = tuple(code_of(self.name, self.command, self.model))
            return _compacted_once(self, code, session, _KnownTokenizer(tokenizer.fingerprint, tokenizer))
        return self.compact_again(session, tokenizer)

    def compact_again(self, session: str, tokenizer: Tokenizer) -> Compacted:
        """The session compacted in `rounds` equal parts: each round compacts what was retained and the next part."""
        size, began = len(tokenizer.encode(session)), time.perf_counter()
        retained, read, written = "", 0, 0
        for part in split_in_parts(session, self.rounds):
            text = f"{retained}\n{part}" if retained else part
            if self._asks_model:
                summary = self._summary(text)
                read, written = read + summary.read, written + summary.written
                if summary.items:
                    return self._unreadable(summary, size, time.perf_counter() - began)
                retained = self._checked(text, summary.text, tokenizer)
            else:
                retained = self._checked(text, self._retained(text, tokenizer), tokenizer)
        tokens = len(tokenizer.encode(retained))
        return Compacted(retained, tokens, size, time.perf_counter() - began, self.rounds, read, written)

    @property
    def _asks_model(self) -> bool:
        return self.name in (PROMPTED, PROVIDER) and not self.command

    def _summary(self, text: str) -> KeptSession:
        if self.name == PROVIDER:
            return compacted_by_provider(self.model, text, self.keep)
        return summarised(self.model, text, self.keep)

    def _unreadable(self, kept: KeptSession, size: int, seconds: float) -> Compacted:
        """A result that only the provider can read. Its tokens are those that the provider says it wrote."""
        if self.rounds > 1:
            raise CompactionFailed(f"only {kept.reader} can read what it retained, so that it is compacted in 1 round")
        if kept.written > size:
            raise CompactionFailed(f"the compactor returned more than it got: {kept.written:,} tokens for {size:,}")
        return Compacted("", kept.written, size, seconds, 1, kept.read, kept.written, kept)

    def _checked(self, text: str, retained: object, tokenizer: Tokenizer) -> str:
        if isinstance(retained, list):
            retained = text_of_messages(retained)
        if not isinstance(retained, str):
            raise CompactionFailed(f"the compactor returned {type(retained).__name__}, not a text or messages")
        if not retained.strip():
            raise CompactionFailed("the compactor returned nothing")
        before, after = len(tokenizer.encode(text)), len(tokenizer.encode(retained))
        if after > before:
            raise CompactionFailed(f"the compactor returned more than it got: {after:,} tokens for {before:,}")
        return retained.strip()

    def _retained(self, text: str, tokenizer: Tokenizer) -> object:
        if self.command:
            return self._by_command(text)
        if self.name == "compact:tail":
            return tail_of(text, self.keep, tokenizer)
        if self.name == "compact:drop-tools":
            return without_tools(text)
        function = _function(self.name, registry.plugin_digest(self.name))
        content = messages_of(text) if _takes_messages(function) else text
        return self._in_time(lambda: function(content, self.keep))

    def _by_command(self, text: str) -> str:
        """Runs the program in a process group of its own, which is ended with it, and after the time limit."""
        registry.refuse_foreign_command(self.command)
        environment = {**os.environ, "LEADLINE_TOKENS": str(self.keep)}
        # Files, because pipes stay open for as long as a child of the program holds them.
        with TemporaryFile() as session, TemporaryFile() as output, TemporaryFile() as errors:
            session.write(text.encode("utf-8", "surrogatepass"))
            session.seek(0)
            try:
                program = subprocess.Popen(
                    shlex.split(self.command), stdin=session, stdout=output, stderr=errors, env=environment,
                    start_new_session=True,
                )  # fmt: skip
            except (OSError, ValueError, IndexError) as error:
                raise CompactionFailed(f"the compactor could not be started: {error}") from None
            try:
                status = program.wait(self.timeout)
            except subprocess.TimeoutExpired:
                raise CompactionFailed(f"the compactor took more than {self.timeout:g} s") from None
            finally:
                _end_group(program)
            if status:
                raise CompactionFailed(f"the compactor ended with status {status}: {_last_words(errors)}")
            output.seek(0)
            try:
                return output.read().decode("utf-8")
            except UnicodeDecodeError:
                raise CompactionFailed("the compactor wrote bytes that are not UTF-8") from None

    def _in_time(self, call: Callable[[], object]) -> object:
        """Calls a function of the user's in a thread. The thread is left behind when it takes too long."""
        results: list[object] = []
        problems: list[str] = []

        def work() -> None:
            try:
                results.append(call())
            except BaseException as error:  # code of the user's, which may also exit
                problems.append(f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS])

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(self.timeout)
        if problems:
            raise CompactionFailed(f"the compactor failed: {problems[0]}")
        if not results:
            raise CompactionFailed(f"the compactor took more than {self.timeout:g} s")
        return results[0]


def _end_group(program: subprocess.Popen[bytes]) -> None:
    """Ends a program and every process that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(program.pid, signal.SIGKILL)
        else:  # Windows
            program.kill()
    program.wait()


def _last_words(errors: IO[bytes]) -> str:
    """The end of what a program wrote to stderr, in one line."""
    size = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, size - ERROR_CHARACTERS))
    return " ".join(errors.read().decode("utf-8", "replace").split()) or "it said nothing"


@lru_cache(maxsize=16)
def _function(name: str, digest: str) -> Callable[[object, int], object]:
    """The function of a file, which is run once for each state of its code and not for each session."""
    function: Callable[[object, int], object] = registry.find("tasks", name)
    return function


@dataclass(frozen=True, slots=True)
class CompactorCode:
    """A file of the user's that decides what is retained: another code is another run."""

    name: str
    digest: str


@dataclass(frozen=True, slots=True)
class _KnownTokenizer:
    """Compared by its fingerprint."""

    fingerprint: str
    tokenizer: Tokenizer = field(compare=False)


@lru_cache(maxsize=KEPT_RESULTS)
def _compacted_once(
    compactor: Compactor, code: tuple[CompactorCode, ...], session: str, known: _KnownTokenizer
) -> Compacted:
    """Failures are not kept: the compactor is asked again."""
    return compactor.compact_again(session, known.tokenizer)


def code_of(name: str, command: str, model: str) -> list[CompactorCode]:
    """The files of a compactor: its function, the model that summarises, and every file that its command names."""
    if command:
        files = {word: Path(word) for word in shlex.split(command)}
        return [CompactorCode(word, digest_bytes(path.read_bytes())) for word, path in files.items() if path.is_file()]
    asked = (name, model) if name in (PROMPTED, PROVIDER) else (name,)
    return [CompactorCode(named, digest) for named in asked if (digest := registry.plugin_digest(named))]


def check_compactor(name: str, command: str, model: str) -> None:
    """Raises for a name that no compactor has, before anything is asked."""
    if command:
        return
    if registry.plugin_file(name) is not None:
        if not callable(registry.find("tasks", name)):
            raise UsageError(f"{name} is not a function", where="compactor", fix="give a function of text and tokens")
    elif name not in BUILT_IN:
        raise UnknownName("compactor", name, [*BUILT_IN, "./FILE.py:NAME"], where="compactor")
    if name in (PROMPTED, PROVIDER) and not model:
        raise UsageError(
            f"{name} needs a model that compacts",
            where="compactor",
            fix="add --set compactor_model=NAME, for example the tested model itself",
        )


Message = dict[str, str]


def _takes_messages(function: Callable[..., object]) -> bool:
    try:
        return next(iter(inspect.signature(function).parameters), "") == "messages"
    except (TypeError, ValueError):  # a callable without a signature
        return False


def messages_of(session: str) -> list[Message]:
    """The session as messages of users, assistants and the system. Everything else is a tool's message."""
    messages: list[Message] = []
    for line in session.splitlines(keepends=True):
        speaker = _SPEAKER.match(line)
        if speaker:
            messages.append({"role": speaker[1], "content": line[speaker.end() :]})
        elif not messages or (_TOOL.match(line) and messages[-1]["role"] != "tool"):
            messages.append({"role": "tool", "content": line})
        else:
            messages[-1]["content"] += line
    return messages


def text_of_messages(messages: Sequence[object]) -> str:
    """The transcript of messages. Tools' messages get no name."""
    text = ""
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise CompactionFailed("the compactor returned a list that is not of messages with role and content")
        role = str(message.get("role", "tool"))
        text += ("" if role == "tool" else f"{role}: ") + message["content"].rstrip("\n") + "\n"
    return text


def split_in_parts(session: str, count: int) -> list[str]:
    """Equal parts, cut at line breaks."""
    lines = session.splitlines(keepends=True)
    ends = [round(len(lines) * n / count) for n in range(count + 1)]
    parts = ["".join(lines[a:b]) for a, b in pairwise(ends)]
    return [part for part in parts if part.strip()] or [session]


def tail_of(session: str, keep: int, tokenizer: Tokenizer) -> str:
    """The last sentences or lines that have at most `keep` tokens together."""
    pieces = re.split(r"(?<=\.)(?=\s)|(?<=\n)", session)
    sizes = [len(ids) for ids in tokenizer.encode_batch(pieces)]
    first, total = len(pieces), 0
    while first and total + sizes[first - 1] <= keep:
        first -= 1
        total += sizes[first]
    return "".join(pieces[first:]).strip()


def without_tools(session: str) -> str:
    """The messages of users and assistants, without lines of tools and the sentences planted in them."""
    kept, speaking = [], True
    for line in session.splitlines(keepends=True):
        if _SPEAKER.match(line):
            speaking = True
        elif _TOOL.match(line):
            speaking = False
        if speaking:
            kept.append(line)
    return re.sub(r"\n{3,}", "\n\n", "".join(kept)).strip()


@lru_cache(maxsize=4)
def _opened(name: str) -> Model:
    parsed = registry.ModelName.parse(name)
    return registry.provider(parsed).open(parsed.name)


def compacted_by_provider(name: str, session: str, keep: int) -> KeptSession:
    """What the provider of a model retains by its own means."""
    try:
        model = _opened(name)
        if not isinstance(model, CompactsSessions):
            what = f"{name} has no compaction of its own; OpenAI's is openai:NAME?api=responses"
            raise CompactionFailed(what)
        kept = model.compact_session(messages_of(session), keep)
    except LeadlineError as error:
        raise CompactionFailed(f"the model of the compactor cannot be asked: {error.what}") from None
    if isinstance(kept, Failure):
        raise CompactionFailed(f"the provider's compaction failed: {kept}"[:ERROR_CHARACTERS])
    return kept


def summarised(name: str, session: str, keep: int) -> KeptSession:
    """The summary that a model writes."""
    try:
        model = _opened(name)
        question = DraftQuestion(
            cell=Cell("compaction", 1, None, 0), text=PROMPT.format(session=session, tokens=keep), allowance=keep
        )
        draft = Draft("compaction", "compaction", "", None, (), (question,))
        document = Fitter(model.tokenizer, model.frame).fit(draft)
        [answer] = model.answer(document, document.probes)
    except LeadlineError as error:
        raise CompactionFailed(f"the model of the compactor cannot be asked: {error.what}") from None
    if not isinstance(answer.outcome, Completion):
        raise CompactionFailed(f"the model of the compactor gave no summary: {answer.outcome}"[:ERROR_CHARACTERS])
    text = answer.outcome.text
    read, written = len(document.prompt_ids(document.probes[0])), len(model.tokenizer.encode(text))
    return KeptSession(text, read=read, written=written)
