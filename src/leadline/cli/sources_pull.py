"""`leadline sources pull`: fetch public data once, check it, and read it offline ever after."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer


def pull(
    name: Annotated[str | None, typer.Argument(help="squad, hotpotqa ...; without a name, what there is.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Fetch it even if it is here.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Fetch a public data file, check its hash, and keep it in the cache folder."""
    if name is None:
        _list(as_json=json)
        return
    from leadline.cli.screen import print_json, say
    from leadline.text.downloads import pull as fetch

    pulled = fetch(name, progress=_shown(), again=again)
    if json:
        print_json({field: str(getattr(pulled, field)) for field in ("name", "path", "sha256", "url", "checked")})
        return
    say(f"{'fetched' if pulled.fetched else 'already here'}: {pulled.size_bytes:,} bytes, {_CHECKED[pulled.checked]}")
    typer.echo(pulled.path)


_CHECKED = {
    "pinned": "and its SHA-256 is the pinned one",
    "locked": "and its SHA-256 is that of the first download",
    "trusted on first use": "whose SHA-256 nobody vouches for: it is now written to lock.json, and later downloads "
    "must match it",
}


def _list(*, as_json: bool) -> None:
    from leadline.cli.screen import print_json, print_table
    from leadline.text.downloads import DOWNLOADS, data_folder

    here = {name: (data_folder() / d.file).is_file() for name, d in DOWNLOADS.items()}
    if as_json:
        print_json(
            [
                {"name": d.name, "summary": d.summary, "licence": d.licence, "here": here[d.name],
                 "places": [{"url": p.url, "sha256": p.sha256} for p in d.places]}
                for d in DOWNLOADS.values()
            ]
        )  # fmt: skip
        return
    rows = [(d.name, d.summary, d.licence, "yes" if here[d.name] else "no") for d in DOWNLOADS.values()]
    print_table(rows, ("name", "summary", "licence", "here"))


def _shown() -> Callable[[int, int | None], None]:
    """A line in a terminal, now and then; nothing elsewhere."""
    last = 0.0

    def show(done: int, total: int | None) -> None:
        nonlocal last
        ended = done == total
        if sys.stderr.isatty() and (ended or time.monotonic() - last > 0.2):
            last = time.monotonic()
            share = f" of {total / 1e6:,.1f}" if total else ""
            sys.stderr.write(f"\r{done / 1e6:,.1f}{share} MB{chr(10) if ended else ''}")

    return show
