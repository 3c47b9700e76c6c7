"""The floors: a folder imports lower floors only, and folders on one floor do not know each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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


def rooms_imported(path: Path) -> set[str]:
    rooms: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            modules = [node.module]
            if node.module == "leadline":
                modules = [f"leadline.{alias.name}" for alias in node.names if not alias.name.startswith("__")]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        rooms.update(m.split(".")[1] for m in modules if m.startswith("leadline."))
    return rooms


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_folder_imports_lower_floors_only(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    if room not in FLOORS:
        return  # leadline/__init__.py, the public door
    for other in rooms_imported(path):
        if other != room:
            assert FLOORS[other] < FLOORS[room], f"{room} imports {other}"
            assert room not in WITHOUT_MODELS or other not in ("run", "models"), f"{room} imports {other}"


def test_every_room_has_a_floor() -> None:
    rooms = {p.name for p in SOURCE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms == set(FLOORS)
