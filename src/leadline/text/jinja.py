"""Chat templates, rendered as their makers mean them: in a sandbox, with the few extras that templates count on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from leadline.core.errors import TokenizerError


def render(source: str, values: Mapping[str, Any], *, where: str) -> str:
    try:
        return _environment().from_string(source).render(values)
    except jinja2.TemplateError as error:
        raise TokenizerError(
            f"the chat template does not render: {error}", where=where, fix="give template=FILE, or api=completions"
        ) from None


class _Generation(Extension):
    """Templates mark the assistant's part with {% generation %} for training; for a prompt it means nothing."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Any) -> Any:
        parser.stream.expect("name:generation")
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )

    def complain(message: str) -> None:
        raise jinja2.TemplateError(message)

    def plain_json(value: Any, **settings: Any) -> str:
        settings.setdefault("ensure_ascii", False)
        return json.dumps(value, **settings)

    environment.globals["raise_exception"] = complain
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.filters["tojson"] = plain_json
    return environment
