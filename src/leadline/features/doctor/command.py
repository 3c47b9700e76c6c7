"""`leadline doctor`: check a model and its server before measuring it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.text import Text

import leadline
from leadline.console.model_names import resolve_model
from leadline.console.output import print_json, say
from leadline.console.progress import ProgressListener, SanitisingConsole
from leadline.console.serving import ServeOption, serving
from leadline.core.contracts import Model, Remote
from leadline.core.errors import Interrupted, UsageError
from leadline.core.files import cache_folder, read_cache, write_cache
from leadline.core.format import format_count, format_duration, format_length, sanitise
from leadline.core.lengths import parse_length
from leadline.core.seeds import digest
from leadline.core.spec import make_spec
from leadline.features.doctor.checks import CHECKS, KeptChecks, choose_checks, examine
from leadline.features.doctor.findings import CheckReport, CheckResult, CheckStatus
from leadline.run.events import reporting_waits
from leadline.run.plan import open_model, refuse_secrets

CHECK_HELP = f"Make only this check: {', '.join(check.id for check in CHECKS)}. Repeatable. [default: all]"
RATE_LIMIT_SECONDS = 60.0
"""The longest wait for a rate limit when the model is opened."""
KEPT_SECONDS = 3600.0
"""The results of a stopped check-up are used this long. Later the server may be another one."""
LONGEST_HELP = (
    "Longest prompt to send, in tokens. [default: the claimed window, up to 128k; 4k if the model claims none]"
)


def doctor(
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="PROVIDER:NAME?key=value&key=value, as for `leadline run`: "
            "openai:NAME?base_url=http://127.0.0.1:8000/v1, hf:FOLDER.",
            show_default=False,
        ),
    ] = "",
    serve: ServeOption = "",
    check: Annotated[list[str] | None, typer.Option(metavar="CHECK", help=CHECK_HELP)] = None,
    longest: Annotated[str, typer.Option(metavar="TOKENS", help=LONGEST_HELP, show_default=False)] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what a run checks before it begins: about ten small requests.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Seconds until a request times out.")
    ] = 600.0,
    json: Annotated[bool, typer.Option("--json", help="Print the results as JSON to stdout.")] = False,
) -> None:
    """Check that a model is asked what you think: nothing is cut off, rewritten, miscounted or added.

    A document as long as the window is sent with facts in it, texts of several kinds are counted, and small requests
    are repeated, sampled and sent all at once: about 120 requests, with an estimate of their time before the first.
    Every finding says how it was seen, what it does to results, and what to do. A check that cannot be made on this
    server says why. Results are shown as they come; after Ctrl-C the same command makes the missing checks only.

    Exit code: 0 no findings, 1 findings, 69 the server does not answer, 130 stopped by Ctrl-C.

    \b
      leadline doctor --model http://127.0.0.1:8000 --quick
      leadline doctor --model "openai:NAME?base_url=http://127.0.0.1:8000/v1"
      leadline doctor --model "openai:NAME?base_url=URL&tokenizer=FOLDER" --longest 32k --json
      leadline doctor --model "openai:NAME?base_url=URL" --check truncation --check receipts
      leadline doctor --serve "vllm serve NAME --port 8001"

    `leadline run` makes the cheap ones of these checks by itself (--no-checks leaves them out).
    """
    choose_checks(check or (), cheap=quick)
    tokens = parse_length(longest) if longest else None
    if not model and not serve:
        raise UsageError("no model given", where="leadline doctor", fix="add --model, or --serve COMMAND")
    with (
        serving(serve, model, None) as served,
        ProgressListener() as listener,
        reporting_waits(listener),
    ):
        opened = _open_for_checks(resolve_model(served, say), timeout)
        show = _ResultsInText(quiet=json)
        unfinished = Unfinished.of(opened, check or (), quick, tokens)

        def keep(kept: KeptChecks) -> None:
            unfinished.write(kept)
            show.result(kept.results[-1])

        try:
            checkup = examine(
                opened,
                only=check or (),
                cheap=quick,
                longest=tokens,
                progress=lambda n, count, title: say(f"{n} of {count}: {title}") if json else None,
                begin=show.begin,
                keep=keep,
                before=unfinished.read(),
            )
        except KeyboardInterrupt:
            raise unfinished.interrupted() from None
        finally:
            opened.close()
    unfinished.remove()
    if json:
        print_json({**msgspec.to_builtins(checkup), "findings": len(checkup.findings)})
    else:
        show.end(checkup)
    if checkup.findings:
        raise typer.Exit(1)


def _open_for_checks(model: str, timeout: float) -> Model:
    """Opens the model although its tokenizer may not be the server's: that is one of the checks."""
    limits = {"allow_tokenizer_mismatch": True, "timeout": timeout, "rate_limit_wait": RATE_LIMIT_SECONDS}
    spec = make_spec({"model": model, "tasks": ["niah"], "lengths": [1024], "limits": limits}, where="doctor")
    refuse_secrets(spec)
    return open_model(spec)


class Unfinished:
    """The file that keeps the results of a check-up until all its checks are made. A cache: it may be deleted."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._count = 0

    @classmethod
    def of(cls, model: Model, only: Sequence[str], quick: bool, longest: int | None) -> Unfinished:
        address = model.address if isinstance(model, Remote) else ""
        request = [
            address,
            model.card.name,
            model.card.fingerprints,
            sorted(only),
            quick,
            longest,
            leadline.__version__,
        ]
        return cls(cache_folder() / "doctor" / f"{digest(request)}.json")

    def read(self) -> KeptChecks | None:
        """The findings from before the same command was stopped; None if there are none or they are old."""
        try:
            age = time.time() - self._file.stat().st_mtime
        except OSError:
            return None
        kept = read_cache(self._file, msgspec.json.Decoder(KeptChecks).decode) if age < KEPT_SECONDS else None
        if kept is not None:
            self._count = len(kept.results)
            checks = format_count(self._count, "check")
            say(f"resuming: {checks} of {format_duration(age)} ago; the rest is made now")
        return kept

    def write(self, kept: KeptChecks) -> None:
        self._count = len(kept.results)
        write_cache(self._file, msgspec.json.encode(kept))

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)

    def interrupted(self) -> Interrupted:
        again = f"run the same command again within {format_duration(KEPT_SECONDS)}: only missing checks are made"
        kept = format_count(self._count, "check")
        return Interrupted(f"interrupted; {kept} made and kept", where="leadline doctor", fix=again)


# --- the results in the terminal

RESULTS: dict[CheckStatus, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "finding": ("FINDING", "bold red"),
    "not_made": ("not made", "yellow"),
}
"""The word and the colour of a result."""


class _ResultsInText:
    """Prints a line for each check when it is made, with effect and fix of a finding, and the counts at the end."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = SanitisingConsole()
        self._quiet = quiet

    def begin(self, report: CheckReport, estimate: str) -> None:
        if estimate:
            say(f"{estimate}; --quick makes the small ones only")
        window = f", claimed window {format_length(report.window)}" if report.window else ""
        server = f" on {report.server}" if report.server else " in this process"
        self._print(Text(sanitise(f"{report.model}{server}{window}"), style="bold"))
        for result in report.results:
            self.result(result)

    def result(self, result: CheckResult) -> None:
        word, style = RESULTS[result.status]
        evidence = sanitise(result.evidence, None)
        self._print(Text.assemble((f"{word:9} ", style), f"{result.title} ({result.check}): {evidence}"))
        if result.status == "finding":
            self._print(Text(f"{'':10}effect: {result.effect}"))
            self._print(Text(f"{'':10}fix:    {sanitise(result.fix, None)}"))

    def end(self, report: CheckReport) -> None:
        self._print(Text(""))
        self._print(Text(_counts(report)))

    def _print(self, text: Text) -> None:
        if not self._quiet:
            self._console.print(text, soft_wrap=True)


def _counts(checkup: CheckReport) -> str:
    """`2 findings; 15 checks fine, 1 not made; 123 requests, 45,678 prompt tokens, 12 s`."""
    fine = sum(result.status == "ok" for result in checkup.results)
    skipped = sum(result.status == "not_made" for result in checkup.results)
    findings = format_count(len(checkup.findings), "finding") if checkup.findings else "no findings"
    tokens, duration = f"{checkup.prompt_tokens:,} prompt tokens", format_duration(checkup.seconds)
    cost = f"{format_count(checkup.requests, 'request')}, {tokens}, {duration}"
    return f"{findings}; {format_count(fine, 'check')} fine, {skipped} not made; {cost}"
