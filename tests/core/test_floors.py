"""The floors: a folder imports lower floors only, folders on one floor do not know each other, and a feature is known
to nobody but itself."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "leadline"
FILES = sorted(SOURCE.rglob("*.py"))
FLOORS = {
    "core": 0,
    "text": 1, "store": 1, "stats": 1,
    "tasks": 2, "scorers": 2, "models": 2, "results": 2,
    "run": 3, "report": 3,
    "console": 4,
    "features": 5,
    "cli": 6,
}  # fmt: skip
WITHOUT_MODELS = ("results", "report")
"""A saved run is read where no model can be opened."""


def modules_imported(path: Path) -> set[tuple[str, ...]]:
    """Leadline's own modules that a file imports, as their parts below `leadline`."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            modules.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
    return {tuple(m.split(".")[1:]) for m in modules if m.startswith("leadline.") and not m.startswith("leadline.__")}


@cache
def imports() -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Every import of a module of Leadline: the file, its parts, and the parts of what it imports."""
    files = [(path.relative_to(SOURCE).parts, path) for path in FILES]
    return [("/".join(parts), parts, module) for parts, path in files for module in modules_imported(path)]


def test_a_folder_imports_lower_floors_only() -> None:
    wrong = [
        f"{file} imports {'.'.join(module)}"
        for file, (room, *_), module in imports()
        if room in FLOORS and (other := module[0]) in FLOORS and other != room
        if FLOORS[other] >= FLOORS[room] or (room in WITHOUT_MODELS and other in ("run", "models"))
    ]
    assert not wrong, "\n".join(wrong)


def test_a_feature_is_imported_by_nobody_but_itself() -> None:
    """They come in through entry points. `leadline.api` and `cli` are above all floors and no exception."""
    wrong = [
        f"{file} imports {'.'.join(module)}"
        for file, parts, module in imports()
        if module[0] == "features" and (parts[0] != "features" or parts[1] != module[1])
    ]
    assert not wrong, "\n".join(wrong)


def test_every_room_has_a_floor() -> None:
    rooms = {p.name for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms == set(FLOORS)


def circle_in(imports_of: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a ring; empty if there are none."""
    done: set[str] = set()

    def follow(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        for other in sorted(imports_of.get(module, ())):
            if ring := follow(other, [*path, module]):
                return ring
        done.add(module)
        return []

    return next((ring for module in sorted(imports_of) if (ring := follow(module, []))), [])


RINGS_CUT = {
    ("models.hf", "models.hf.load"),  # torch is imported when a model is opened
    ("models.hf", "models.hf.model"),
    ("models.hf.partial_attention", "models.hf.fused_kernels"),  # Triton is imported only on a GPU
    ("models.hf.rows_table", "models.hf.rows_kernels"),
    ("features.logprobs.report", "features.logprobs.charts"),  # altair is imported when a chart is drawn
}
"""Imports that are not made when the module is imported, each with its reason."""


def test_no_two_modules_import_each_other_however_indirectly() -> None:
    """Imports inside functions and for type checkers count too, but for those that are listed with a reason."""
    names = {".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in FILES}
    imports_of: dict[str, set[str]] = {}
    for _, parts, module in imports():
        name = ".".join(parts).removesuffix(".py").removesuffix(".__init__")
        other = ".".join(module) if ".".join(module) in names else ".".join(module[:-1])
        if other in names and other != name and (name, other) not in RINGS_CUT:
            imports_of.setdefault(name, set()).add(other)
    assert len(imports_of) > 100
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle_in(imports_of) == []


def test_the_flags_of_servers_are_named_in_one_file() -> None:
    flags = ("--max-model-len", "--ctx-size", "num_ctx", "--enable-prefix-caching", "--disable-radix-cache")
    naming = {path.relative_to(SOURCE).as_posix() for path in FILES if any(f in path.read_text() for f in flags)}
    assert naming == {"results/server_advice.py"}
