"""The pages on specs and runs say what the program does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from leadline.core import errors
from leadline.core.answers import FailureKind
from leadline.core.registry import task
from leadline.core.spec import Limits, Spec, make_spec, parse_models

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.mark.parametrize("text", blocks("specs.md", "toml"))
def test_the_specs_shown_are_specs(text: str) -> None:
    values = tomllib.loads(text)
    models = [one.model for one in parse_models(values.pop("models"), where="docs")] if "models" in values else []
    for model in models or [values["model"]]:
        spec = make_spec({**values, "model": model})
        assert all(task(asked) for asked in spec.tasks)


def test_every_field_and_limit_is_explained_with_its_default() -> None:
    page = (DOCS / "specs.md").read_text()
    for name in [*Spec.model_fields, *Limits.model_fields]:
        if name != "limits":
            assert f"| `{name}` |" in page, name
    for name, field in Limits.model_fields.items():
        default = {None: "none", False: "false", "": "none"}.get(field.default) or f"{field.default:g}"
        assert re.search(rf"\| `{name}` \|.*\| {default} \|", page), name


def test_every_kind_of_failure_and_exit_code_is_explained() -> None:
    page = (DOCS / "runs.md").read_text()
    for kind in FailureKind.__args__:  # type: ignore[attr-defined]
        assert f"`{kind}`" in page, kind
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.LeadlineError)]
    for cls in classes:
        assert f"| {cls.exit_code} |" in page, cls


def test_the_program_shown_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = blocks("runs.md", "python")
    exec(program, {"__name__": "docs"})
    assert (tmp_path / "my-run" / "records.jsonl").exists()
