"""Sections of a report that features and other packages add, through the entry points `leadline.report_sections`.

An entry point names a function of runs and their titles: of one run, or of several that are shown side by side. What it
returns is drawn in the terminal and on the page, its figures are exported with the others, and its values are in the
JSON of a run under the entry point's name. None stands for nothing to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from leadline.core import registry
from leadline.core.errors import LeadlineError
from leadline.core.format import sanitise
from leadline.report.text_table import TextTable
from leadline.results.run import Run
from leadline.results.summary import summary

if TYPE_CHECKING:
    from leadline.report.charts.theme import Figure  # imports altair, which the terminal does not need


@dataclass(frozen=True, slots=True)
class SectionText:
    text: str
    kind: Literal["note", "warning", "heading"] = "note"


@dataclass(frozen=True, slots=True)
class SectionFigure:
    """A figure, drawn when the page or an export needs it; the terminal leaves it out."""

    name: str
    """Of its file."""
    draw: Callable[[bool], Figure]
    """Called with True for a figure that fits one column of a paper or a phone."""
    is_main: bool = False
    """Whether a finished run is shown by this figure in place of its heatmap."""


SectionPart = SectionText | SectionFigure | TextTable


@dataclass(frozen=True, slots=True)
class ReportSection:
    title: str
    parts: tuple[SectionPart, ...]
    values: Any = None
    """Of one run, for JSON."""
    link: str = ""
    """Its name among the links at the top of the page; its title by default."""
    has_scores: bool = False
    """Whether its tables have the scores of every task, so that the table of tasks and lengths is left out."""
    page_only: bool = False
    """Whether the terminal leaves it to the page: a run's first lines are for what the run decided."""

    @property
    def figures(self) -> Iterator[SectionFigure]:
        return (part for part in self.parts if isinstance(part, SectionFigure))


SectionMaker = Callable[[Sequence[Run], Sequence[str]], ReportSection | None]


def report_sections(runs: Sequence[Run], names: Sequence[str]) -> dict[str, ReportSection]:
    """What all installed sections say, by the names of their entry points. One that fails is a section with the
    reason: the rest of the report is still worth reading."""
    sections = {name: _section(name, runs, names) for name in registry.names("report_sections")}
    return {name: section for name, section in sections.items() if section is not None}


def _section(name: str, runs: Sequence[Run], names: Sequence[str]) -> ReportSection | None:
    try:
        make: SectionMaker = registry.find("report_sections", name)
        section = make(runs, names)
        if section is None or isinstance(section, ReportSection):
            return section
        reason = f"it returns {type(section).__name__}, not a ReportSection"
    except LeadlineError:
        raise
    except Exception as error:  # code of another package
        reason = f"{type(error).__name__}: {error}"
    warning = f"The section {name} could not be made: {sanitise(reason, 300)}."
    return ReportSection(name, (SectionText(warning, "warning"),), {"error": reason})


def sections_of(run: Run) -> dict[str, ReportSection]:
    return report_sections([run], [run.label])


def run_values(run: Run) -> dict[str, Any]:
    """A run as plain values for JSON, with those of all sections."""
    sections = {name: section.values for name, section in sections_of(run).items() if section.values is not None}
    return sections | summary(run)


def main_figure(run: Run) -> SectionFigure | None:
    """The figure of a section that is shown in place of the heatmap, if one has such a figure."""
    figures = (figure for section in sections_of(run).values() for figure in section.figures)
    return next((figure for figure in figures if figure.is_main), None)
