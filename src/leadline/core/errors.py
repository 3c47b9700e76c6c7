"""Every error shown to users, as what / where / fix, with its exit code.

LeadlineError
  UsageError          64  a command or spec is wrong
    UnknownName       64  a task, model, source, option or key that does not exist
    UntrustedFile     64  a run folder names a Python file, which the user did not
  LengthError         65  a document of the requested length cannot be built
  SourceError         66  a haystack or data file is missing, unreadable or too short
  TokenizerError      66  a tokenizer or chat template is missing or unusable
  ServerError         69  a server cannot be reached or does not speak the protocol
    ServerAway        69  a temporary outage: it was not reached, or cannot answer now
  MissingExtra        69  an optional package is not installed
  TrackerError        76  results could not be written to a tracker; the run itself is complete
  RenderError         69  a figure could not be drawn
  StoreError          74  records cannot be written or read
    OtherRunError     73  the folder holds a run with another identity
    LockedError       75  another process is writing this run or file
    UnreadableRecord  74  a record that could not be read back, so it was not written
  RunStopped          75  the run stopped early and can be resumed
    Interrupted      130  the user stopped it
  FailedSamples        1  the run finished, but some samples have no valid answer
  TruncatedPrompts    65  a gate cannot judge a run whose prompts were not read as sent
  NotMeasured         65  the answers of a server are no measurement of the model
  JudgeRefused        65  a judge may not grade: of the tested model's family, or it fails known cases

The codes follow sysexits.h; 1 and 2 say that the program worked, and that the result is bad or undecided.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar


class LeadlineError(Exception):
    """An error of the whole run; an error of one sample is a recorded `Failure`. Only the command line catches it."""

    exit_code: ClassVar[int] = 70
    usual_fix: ClassVar[str] = ""
    """The usual fix, for errors without one of their own."""

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix or self.usual_fix

    def __reduce__(self) -> tuple[Callable[..., LeadlineError], tuple[type[LeadlineError], dict[str, Any]]]:
        """Pickles the attributes, because subclasses have other constructor arguments."""
        return _unpickle, (type(self), self.__dict__)

    def __str__(self) -> str:
        lines = [self.what]
        if self.where:
            lines.append(f"where: {self.where}")
        if self.fix:
            lines.append(f"fix:   {self.fix}")
        return "\n".join(lines)


def _unpickle(kind: type[LeadlineError], values: dict[str, Any]) -> LeadlineError:
    error = kind.__new__(kind, values["what"])
    error.__dict__.update(values)
    return error


class UsageError(LeadlineError):
    exit_code = 64


class UnknownName(UsageError):
    """A name that does not exist, with the closest names that do."""

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str = "") -> None:
        choices = sorted(known)
        near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
        if name not in choices and name.lower() in choices:
            fix = f"did you mean {name.lower()!r}?"
        elif near:
            fix = f"did you mean {' or '.join(repr(n) for n in near)}?"
        elif choices:
            fix = f"known: {', '.join(choices[:20])}{' ...' if len(choices) > 20 else ''}"
        else:
            fix = f"no {kind} is accepted here"
        super().__init__(f"unknown {kind} {name!r}", where=where, fix=fix)


class OptionElsewhere(UsageError):
    """An option of another task than the one it was given to."""

    def __init__(self, option: str, task: str, *, where: str = "") -> None:
        fix = f"name {task} in place of this task, or leave out {option}"
        super().__init__(f"{option} is an option of the task {task}", where=where, fix=fix)


class UntrustedFile(UsageError):
    """A run folder names a Python file. It may come from someone else, so the file is not imported."""

    def __init__(self, file: Path, folder: str) -> None:
        super().__init__(
            f"the run folder names the Python file {file}; importing it would run its code, so it was not imported",
            where=folder,
            fix=f"read {file}; if you trust it, name it again yourself or add --trust",
        )


UNBUILT = "this prompt cannot be built"
"""How the failure of a sample begins whose document has no possible text of its length."""


class LengthError(LeadlineError):
    """A document of this length cannot be built; `shortest` is the shortest possible length, where known."""

    exit_code = 65

    def __init__(self, what: str, *, where: str = "", fix: str = "", shortest: int | None = None) -> None:
        super().__init__(what, where=where, fix=fix)
        self.shortest = shortest


class SourceError(LeadlineError):
    exit_code = 66
    usual_fix = "correct the file, or give another one"


class TokenizerError(LeadlineError):
    exit_code = 66
    usual_fix = "give another tokenizer, such as tokenizer=FOLDER with a tokenizer.json"


class ServerError(LeadlineError):
    exit_code = 69
    usual_fix = "check base_url and the log of the server"


class ServerAway(ServerError):
    """A temporary outage: retrying later may succeed. `rate_limited`: the server answers 429."""

    def __init__(self, what: str, *, where: str = "", fix: str = "", rate_limited: bool = False) -> None:
        super().__init__(what, where=where, fix=fix)
        self.rate_limited = rate_limited


class MissingExtra(LeadlineError):
    """An optional package is not installed; the fix is the pip command."""

    exit_code = 69

    def __init__(self, package: str, extra: str, *, where: str = "") -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed",
            where=where,
            fix=f'pip install "leadline[{extra}]"; in a clone of the repository: pip install -e ".[{extra}]"',
        )


class TrackerError(LeadlineError):
    exit_code = 76
    usual_fix = "the run itself is complete; try `leadline log RUN --to ...` again"


class RenderError(LeadlineError):
    exit_code = 69
    usual_fix = "the results are saved; `leadline report RUN --json` shows them without figures"


class StoreError(LeadlineError):
    exit_code = 74
    usual_fix = "fix its permissions, free some space, or choose another path"


class OtherRunError(StoreError):
    exit_code = 73


class LockedError(StoreError):
    exit_code = 75


class UnreadableRecord(StoreError):
    """Caught by the run, which records a failure instead."""


class RunStopped(LeadlineError):
    exit_code = 75


class Interrupted(RunStopped):
    exit_code = 130


class FailedSamples(LeadlineError):
    exit_code = 1


class TruncatedPrompts(LeadlineError):
    exit_code = 65


class NotMeasured(LeadlineError):
    """The server's answers are no measurement of the model."""

    exit_code = 65


class JudgeRefused(LeadlineError):
    exit_code = 65
