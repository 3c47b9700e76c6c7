"""`leadline build`: write prompts and their keys to files, and ask nobody."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli.options import DEFAULT_LENGTHS, Flags, spec_of

if TYPE_CHECKING:
    from leadline.run.export_prompts import Form
    from leadline.text.fitting import Fitter

LINE_SECONDS = 10.0


def build(
    what: Annotated[str, typer.Argument(metavar="SUITE|TASK|SPEC.toml", help="What to write prompts of.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A .jsonl file, or a folder for --format ruler.")],
    tokenizer: Annotated[
        str | None, typer.Option(help="What lengths are counted in: a model folder, a tokenizer.json, bytes ...")
    ] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Count the tokenizer folder's chat template in.")] = False,
    model: Annotated[str | None, typer.Option(help="Or a model whose tokenizer and template are counted.")] = None,
    format: Annotated[str, typer.Option(help="jsonl, or ruler for ROOT/LENGTH/TASK/validation.jsonl.")] = "jsonl",
    split: Annotated[str, typer.Option(help="test, or train: other seeds and words than test ever uses.")] = "test",
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A task's option.")] = None,
    templates: Annotated[Path | None, typer.Option(help="Texts of your own in place of ours.")] = None,
    lengths: Annotated[str | None, typer.Option(help=f"4k,8k,16k. [default: {DEFAULT_LENGTHS}]")] = None,
    depths: Annotated[str | None, typer.Option(help="11 (even), sigmoid:11, or 0,0.5,1. [default: 5]")] = None,
    samples: Annotated[int | None, typer.Option(help="Samples of every cell. [default: 3]")] = None,
    reading: Annotated[str | None, typer.Option(help="fresh, shared or nested. [default: fresh]")] = None,
    seed: Annotated[int | None, typer.Option(help="Another number, other samples. [default: 0]")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Write prompts and their keys, for other programs or for training."""
    from leadline.cli.output import print_json
    from leadline.core.errors import UnknownName
    from leadline.run.export_prompts import FORMS, write_prompts

    if format not in FORMS:
        raise UnknownName("format", format, FORMS, where="--format")
    form: Form = "ruler" if format == "ruler" else "jsonl"
    asked = Flags(
        what=what, model=model or "sim:perfect", set_=[*(set_ or []), f"split={split}"], lengths=lengths,
        depths=depths, samples=samples, reading=reading, seed=seed, templates=templates,
    )  # fmt: skip
    spec = spec_of(asked)
    began = time.monotonic()
    with_counted, close = _counted(tokenizer, model, chat)
    try:
        written = write_prompts(spec, with_counted, output, form, progress=_progress())
    finally:
        close()
    if json:
        print_json(
            {"files": [str(f) for f in written.files], "prompts": written.prompts, "seconds": time.monotonic() - began}
        )
        return
    for file in written.files[:20]:
        typer.echo(file)
    if len(written.files) > 20:
        typer.echo(f"... and {len(written.files) - 20} more files")
    typer.echo(f"{written.prompts:,} prompts in {time.monotonic() - began:.1f} s")


def _counted(tokenizer: str | None, model: str | None, chat: bool) -> tuple[Fitter, Callable[[], None]]:
    """The tokenizer and frame that lengths are counted in, and what to call when done with them."""
    from leadline.core import registry
    from leadline.core.errors import UsageError
    from leadline.text.chat import ChatTemplate, completion_frame
    from leadline.text.fitting import Fitter
    from leadline.text.tokenizers import open_tokenizer

    if (tokenizer is None) == (model is None):
        raise UsageError(
            "a length is a number of tokens, so a tokenizer is needed",
            where="build",
            fix="give either --tokenizer FOLDER or --model M",
        )
    if model is not None:
        name = registry.ModelName.parse(model)
        opened = registry.provider(name).open(name.name)
        return Fitter(opened.tokenizer, opened.frame), opened.close
    assert tokenizer is not None
    template = ChatTemplate.load(Path(tokenizer).expanduser()) if chat else None
    if chat and template is None:
        raise UsageError("this tokenizer has no chat template", where=tokenizer, fix="leave out --chat")
    frame = template.frame() if template else completion_frame()
    return Fitter(open_tokenizer(tokenizer), frame), lambda: None


def _progress() -> Callable[[int, int], None]:
    from leadline.cli.output import say

    last = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            say(f"{done:,} of {total:,} prompts")

    return show
