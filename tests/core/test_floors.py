"""The floors: a folder imports lower floors only, folders on one floor do not know each other, and a feature is known
to nobody but itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "leadline"
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


def imports() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Every import of a module of Leadline: the file, its parts, and the parts of what it imports."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).parts
        for module in modules_imported(path):
            yield "/".join(parts), parts, module


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
