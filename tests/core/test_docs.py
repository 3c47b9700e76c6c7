"""The documentation as a whole: every page is in the site, links lead somewhere, terms are listed once."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
SCREEN = 60
"""Lines of at most `WIDTH` characters: a longer one, as in tables, counts as several."""
WIDTH = 160


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as the site and code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_site() -> None:
    listed = re.findall(r"^ +- .+: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == [page.name for page in PAGES]


def shelf(name: str) -> list[str]:
    """The pages below one heading of the site's navigation."""
    (listed,) = re.findall(rf"^  - {name}:\n((?:      +- .+\n)+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    return re.findall(r": (\S+\.md)$", listed, re.MULTILINE)


def test_the_site_has_four_shelves() -> None:
    assert re.findall(r"^  - (\S+):$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE) == [
        "Start",
        "How-to",
        "Reference",
        "Background",
    ]


@pytest.mark.parametrize("name", shelf("How-to"))
def test_a_how_to_is_at_most_a_screen(name: str) -> None:
    lines = (ROOT / "docs" / name).read_text().splitlines()
    assert sum(max(1, math.ceil(len(line) / WIDTH)) for line in lines) <= SCREEN


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_glossary_has_each_term_once_in_order() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text()
    terms = re.findall(r"^(\S.*)\n: ", text, re.MULTILINE)
    assert len(terms) > 60
    assert len({term.lower() for term in terms}) == len(terms)
    assert terms == sorted(terms, key=str.lower)


def test_the_changelog_has_the_version_of_the_package_with_a_date() -> None:
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert "Unreleased" not in headings[1:]  # what is not released yet comes first
    released = [heading for heading in headings if heading != "Unreleased"]
    assert re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", released[0])
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_every_path_in_the_design_exists() -> None:
    """Files and folders are named from the root of the repository, or from src/leadline."""
    text = (ROOT / "docs" / "design.md").read_text()
    paths = set(re.findall(r"`([\w./-]+(?:\.(?:py|toml|txt|md)|/))`", text))
    assert len(paths) > 80
    assert sorted(p for p in paths if not any((base / p).exists() for base in (ROOT, ROOT / "src" / "leadline"))) == []


def test_the_design_names_every_feature_and_every_door() -> None:
    text = (ROOT / "docs" / "design.md").read_text()
    folders = [p for p in (ROOT / "src" / "leadline" / "features").iterdir() if (p / "__init__.py").exists()]
    doors = re.findall(r'^\[project\.entry-points\."(.+)"\]$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    named = [*(f"`features/{folder.name}/`" for folder in folders), *(f"`{door}`" for door in doors)]
    assert len(named) > 20
    assert [name for name in named if name not in text] == []
