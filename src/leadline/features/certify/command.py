"""`leadline certify`: did a change of engine, quantisation or setting cost long context?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from leadline.console.model_names import resolve_model
from leadline.console.output import echo, print_json, print_table, say, warn
from leadline.console.progress import ProgressListener
from leadline.console.serving import ending_on_sigterm, served_model, server_address
from leadline.core import registry
from leadline.core.errors import UsageError
from leadline.core.format import format_count
from leadline.core.spec import Suite
from leadline.features.certify.decide import looks, parse_margin
from leadline.features.certify.replay import read_failure, write_failures
from leadline.features.certify.replay import replay as ask_again
from leadline.features.certify.report import (
    DRIFT_HEADER,
    HEADER,
    drift_rows,
    figures,
    format_figure,
    headline,
    noise_lines,
    values,
    write_page,
)
from leadline.features.certify.report import (
    junit as junit_xml,
)
from leadline.features.certify.report import (
    markdown as as_markdown,
)
from leadline.features.certify.rounds import Certification, Side, certify_sides, is_run, side_of
from leadline.features.certify.sizing import samples_needed
from leadline.report.comparison import difference_row
from leadline.run.serving import StartedServer
from leadline.store.manifest import read_manifest


def certify(
    base: Annotated[
        str, typer.Argument(metavar="BASE", help="The side that is known to be good: a model string or a run folder.")
    ] = "",
    candidate: Annotated[
        str, typer.Argument(metavar="CANDIDATE", help="The side to judge: a model string or a run folder.")
    ] = "",
    task: Annotated[
        str,
        typer.Option(
            "--task", metavar="TASK|SUITE", help="A task or suite to ask. [default: suite certify]", show_default=False
        ),
    ] = "certify",
    lengths: Annotated[
        str, typer.Option(metavar="LENGTHS", help="Lengths. [default: those of the suite]", show_default=False)
    ] = "",
    depths: Annotated[
        str, typer.Option(metavar="DEPTHS", help="Depths. [default: those of the suite]", show_default=False)
    ] = "",
    samples: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="Most samples a cell. [default: found from --detect and --power]",
            show_default=False,
        ),
    ] = None,
    detect: Annotated[
        str, typer.Option(metavar="POINTS", help="The loss that matters, in points of the overall score.")
    ] = "5pt",
    power: Annotated[float, typer.Option(min=0.5, max=0.99, help="How often such a loss must be found.")] = 0.8,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Requests at a time.")] = 8,
    serve_base: Annotated[
        str,
        typer.Option(
            metavar="COMMAND", help='Start this server for the base, and stop it: "vllm serve NAME --port 8001".'
        ),
    ] = "",
    serve_candidate: Annotated[str, typer.Option(metavar="COMMAND", help="The same for the candidate.")] = "",
    one_at_a_time: Annotated[
        bool,
        typer.Option(
            "--one-at-a-time", help="Measure the base whole, stop its server, then start the candidate: for one GPU."
        ),
    ] = False,
    repeat: Annotated[
        bool, typer.Option("--repeat/--no-repeat", help="Ask some prompts twice, to see what a side does to itself.")
    ] = True,
    logprobs: Annotated[
        bool,
        typer.Option(
            "--logprobs/--no-logprobs", help="Compare log-probabilities and speed on four prompts of every length."
        ),
    ] = True,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway",
            help="Also where tokenizers or templates differ: the same questions in other texts.",
        ),
    ] = False,
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="DIR", help="Folder for both runs, the page and the logs of servers.")
    ] = Path("runs/certify"),
    keep_failures: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write every lost prompt to a file: text, token ids, both answers."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Ask a prompt of --keep-failures again, byte for byte; BASE is the model to ask."
        ),
    ] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the checks as JUnit XML.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for a pull request.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> int:
    """Ask two sides the same prompts and say: kept, lost or undecided. Exit code 0, 1 or 2.

    Sampling stops as soon as the answers decide. Every family, length and depth third is judged too, so a loss that
    shows only past one length or with eight needles is found. Run the same command again to continue.

    \b
      leadline certify "openai:X?base_url=http://127.0.0.1:8001/v1" "openai:X?base_url=http://127.0.0.1:8002/v1"
      leadline certify --one-at-a-time \\
        --serve-base "vllm serve X --port 8001" \\
        --serve-candidate "vllm serve X --port 8002 --kv-cache-dtype fp8"
      leadline certify runs/base runs/candidate --markdown
    """
    if replay is not None:
        return _replay(replay, base)
    if not (base or serve_base) or not (candidate or serve_candidate):
        raise UsageError(
            "two sides are needed",
            where="certify",
            fix="leadline certify BASE CANDIDATE: model strings or run folders; or --serve-base and --serve-candidate",
        )
    margin = parse_margin(detect)
    with ending_on_sigterm():
        sides = _sides(
            base, candidate, _values(task, lengths, depths, samples, workers), out, serve_base, serve_candidate
        )
        if not samples:
            sides = _sized(sides, margin, power)
        certification = certify_sides(
            *sides,
            margin=margin,
            listening=ProgressListener,
            say=say,
            one_at_a_time=one_at_a_time,
            repeat=repeat,
            logprobs=logprobs,
            anyway=anyway,
        )
    servers = [
        (f"{role} server", command)
        for role, command in (("base", serve_base), ("candidate", serve_candidate))
        if command
    ]
    page = write_page(certification, out / "certify.html", servers)
    if junit is not None:
        junit.parent.mkdir(parents=True, exist_ok=True)
        junit.write_text(junit_xml(certification), encoding="utf-8")
    if keep_failures is not None:
        written = write_failures(certification, keep_failures)
        say(f"{format_count(len(written), 'lost prompt')} in {keep_failures}")
    if json:
        print_json(values(certification))
    elif markdown:
        echo(as_markdown(certification))
    else:
        _show(certification, page)
    return certification.decision.exit_code


def _show(certification: Certification, page: Path) -> None:
    colour = {"kept": "green", "lost": "red", "undecided": "yellow"}[certification.decision.outcome]
    echo(headline(certification), bold=True, colour=colour)
    echo()
    print_table(
        [difference_row(d) for d in certification.decision.comparison.differences], HEADER, right=frozenset(range(1, 8))
    )
    echo()
    for figure in figures(certification):
        echo(f"{figure.name:<22} {format_figure(figure)}")
    for line in noise_lines(certification):
        echo(line)
    if rows := drift_rows(certification):
        echo()
        print_table(rows, DRIFT_HEADER, right=frozenset(range(1, len(DRIFT_HEADER))))
    for figure in certification.speeds:
        echo(f"{figure.name:<28} {format_figure(figure)} of the base's")
    for warning in certification.warnings:
        warn(warning)
    echo(f"page      {page}")


def _values(task: str, lengths: str, depths: str, samples: int | None, workers: int) -> dict[str, Any]:
    """The values of the spec, without the model."""
    spec_values: dict[str, Any]
    if task in registry.names("suites"):
        suite: Suite = registry.find("suites", task)
        installed = registry.names("tasks")
        spec_values = {**suite.values, "tasks": [t for t in suite.values["tasks"] if _name_of(t) in installed]}
    else:
        spec_values = {"tasks": [task], "lengths": "2k,4k,8k,16k", "depths": 3, "samples": 16}
    overrides = {"lengths": lengths, "depths": depths, "samples": samples}
    return {**spec_values, **{key: value for key, value in overrides.items() if value}, "limits": {"workers": workers}}


def _name_of(task: str | Mapping[str, Any]) -> str:
    return task if isinstance(task, str) else str(task["name"])


def _sides(
    base: str, candidate: str, values: dict[str, Any], out: Path, serve_base: str, serve_candidate: str
) -> tuple[Side, Side]:
    base, candidate = (
        text if is_run(text) else served_model(command, text) if command else resolve_model(text, say)
        for text, command in ((base, serve_base), (candidate, serve_candidate))
    )  # fmt: skip
    finished = next((text for text in (base, candidate) if is_run(text)), None)
    if finished is not None and not (is_run(base) and is_run(candidate)):
        spec = read_manifest(Path(finished)).spec  # the other side is asked what this one was
        values = {key: value for key, value in spec.items() if key != "model"} | {"limits": values["limits"]}
    arguments = (("base", base, serve_base), ("candidate", candidate, serve_candidate))
    sides = [side_of(role, text, values, out, _server(command, text, out, role)) for role, text, command in arguments]
    if sides[0].spec is not None and sides[1].spec is not None and base == candidate:
        warn("both sides are the same model: only its own noise can show")
    return sides[0], sides[1]


def _server(command: str, model: str, out: Path, role: str) -> StartedServer | None:
    if not command:
        return None
    return StartedServer(command, server_address(command, model), out / f"{role}-server.log", say=say)


def _sized(sides: tuple[Side, Side], margin: float, power: float) -> tuple[Side, Side]:
    """The sides with at most as many samples a cell as find a loss of the margin with this power."""
    specs = [side.spec for side in sides if side.spec is not None]
    if len(specs) < 2:
        return sides
    spec = specs[0]
    points = [(t.title, length, depth) for t in spec.tasks for length in spec.lengths for depth in spec.depths]
    needed = samples_needed(points, margin, power)
    steps = ", ".join(str(look.samples) for look in looks(needed))
    say(f"at most {needed} samples a cell for a loss of {100 * margin:g} points; looks after {steps}")
    return tuple(  # type: ignore[return-value]
        replace(side, spec=side.spec and side.spec.model_copy(update={"samples": needed})) for side in sides
    )


def _replay(path: Path, model: str) -> int:
    prompt = read_failure(path)
    replayed = ask_again(prompt, model or prompt.candidate_model)
    echo(f"cell       {prompt.cell}")
    echo(f"expected   {', '.join(prompt.targets)}")
    echo(f"base       {prompt.base_answer}")
    echo(f"candidate  {prompt.candidate_answer}")
    if replayed.problem:
        warn(replayed.problem)
        return 2
    echo(f"now        {replayed.answer}  (score {replayed.score:g})")
    same = replayed.first_token is None
    echo(
        "the answer of the base" if same else f"first different token: {(replayed.first_token or 0) + 1} of the answer"
    )
    return 0 if (replayed.score or 0.0) >= prompt.base_score else 1
