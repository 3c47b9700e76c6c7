"""`leadline build`: write prompts and their answers to files, without asking a model."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from leadline.console import options
from leadline.console.options import RunOptions, spec_of
from leadline.console.output import echo, print_json, say, warn
from leadline.core import registry
from leadline.core.contracts import PromptFormat
from leadline.core.errors import UsageError
from leadline.core.files import expand_path
from leadline.core.format import format_count
from leadline.core.lengths import AUTO, parse_lengths
from leadline.core.spec import Spec
from leadline.run.export_prompts import write_prompts
from leadline.text.chat import ChatTemplate, completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import FileTokenizer, open_tokenizer

DEFAULT_LENGTHS = "1k,2k,4k,8k"
LENGTHS_HELP = f"Prompt lengths in tokens, such as 4k,8k,16k; 4k is 4096. [default: {DEFAULT_LENGTHS}]"
FORMAT_HELP = (
    "jsonl: a line for each prompt; ruler: ROOT/LENGTH/TASK/validation.jsonl; lm-eval: a folder for its --include_path."
)
LINE_SECONDS = 10.0
"""Between two progress lines."""


def build(
    what: Annotated[str, typer.Argument(metavar="SUITE|TASK|SPEC.toml", help="What to write prompts of.")],
    out: Annotated[
        Path,
        typer.Option(
            "-o", "--out", metavar="PATH", help="A .jsonl file, or a folder with --as ruler and --as lm-eval."
        ),
    ],
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer that counts the lengths: a model folder, a tokenizer.json, or bytes.")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Count the tokenizer's chat template too.")] = False,
    model: Annotated[
        str | None, typer.Option(help="Count with this model's tokenizer and chat template instead.")
    ] = None,
    format: Annotated[str, typer.Option("--as", metavar="FORMAT", help=FORMAT_HELP)] = "jsonl",
    split: Annotated[
        Literal["test", "train"], typer.Option(help="train uses seeds and words that test never uses.")
    ] = "test",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=options.SET_HELP)] = None,
    templates: Annotated[Path | None, typer.Option(metavar="FILE", help=options.TEMPLATES_HELP)] = None,
    lengths: Annotated[str | None, typer.Option(metavar="LENGTHS", help=LENGTHS_HELP)] = None,
    depths: Annotated[str | None, typer.Option(metavar="DEPTHS", help=options.DEPTHS_HELP)] = None,
    samples: Annotated[int | None, typer.Option(metavar="N", help=options.SAMPLES_HELP)] = None,
    reading: Annotated[str | None, typer.Option(metavar="MODE", help=options.READING_HELP)] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help=options.SEED_HELP)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON to stdout.")] = False,
) -> None:
    """Write prompts and their answers to files, for other programs or for training."""
    flags = RunOptions(
        what=what, model=model or "sim:perfect", set_=[*(set_ or []), f"split={split}"], lengths=lengths,
        depths=depths, samples=samples, reading=reading, seed=seed, templates=templates,
    )  # fmt: skip
    spec = _without_auto(spec_of(flags))
    form: PromptFormat = registry.find("prompt_formats", format)
    if not form.is_folder and (not out.name or out.is_dir()):
        raise UsageError("the prompts need a file", where=f"-o {out}", fix="give a name like prompts.jsonl")
    started = time.monotonic()
    fitter, close = _open_fitter(tokenizer, model, chat)
    try:
        written = write_prompts(spec, fitter, out, form, progress=_progress())
    finally:
        close()
    seconds = time.monotonic() - started
    for note in written.notes:
        warn(note)
    if json:
        print_json({"files": [str(f) for f in written.files], "prompts": written.prompts, "seconds": seconds})
        return
    for file in written.files[:20]:
        echo(file)
    if len(written.files) > 20:
        echo(f"... and {len(written.files) - 20} more files")
    echo(f"{format_count(written.prompts, 'prompt')} in {seconds:.1f} s")


def _without_auto(spec: Spec) -> Spec:
    """No model is measured, so there is none that lengths or reading could fit."""
    lengths = spec.lengths or parse_lengths(DEFAULT_LENGTHS)
    return spec.model_copy(update={"lengths": lengths, "reading": "fresh" if spec.reading == AUTO else spec.reading})


def _open_fitter(tokenizer: str | None, model: str | None, chat: bool) -> tuple[Fitter, Callable[[], None]]:
    """The tokenizer and frame that count the lengths, and a function that closes them."""
    if model is not None and tokenizer is None:
        name = registry.ModelName.parse(model)
        opened = registry.provider(name).open(name.name)
        return Fitter(opened.tokenizer, opened.frame), opened.close
    if tokenizer is None or model is not None:
        raise UsageError(
            "a tokenizer is needed to count lengths" if tokenizer is None else "two tokenizers given",
            where="build",
            fix="give either --tokenizer FOLDER or --model M",
        )
    template = ChatTemplate.load(expand_path(tokenizer)) if chat else None
    if chat and template is None:
        raise UsageError("this tokenizer has no chat template", where=tokenizer, fix="remove --chat")
    counting = open_tokenizer(tokenizer)
    begins_with = counting.begins_with if isinstance(counting, FileTokenizer) else ""
    frame = template.frame() if template else completion_frame(begins_with)
    return Fitter(counting, frame), lambda: None


def _progress() -> Callable[[int, int], None]:
    last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            say(f"{done:,} of {total:,} prompts")

    return show
