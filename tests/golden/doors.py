"""Everything of Leadline that the golden tests import. When code moves, this is the one file to point to the new place.

The tests prefer commands (`say`) to functions. What stands below has no command of its own.
"""

from __future__ import annotations

from leadline.cli.main import run_command as say
from leadline.core import registry
from leadline.core.answers import Completion, Failure
from leadline.core.records import Receipt, Score
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.turns import Turns
from leadline.core.types import Cell, Document, Frame, Question
from leadline.features.correlate.correlation import projection_outliers
from leadline.features.judges.agreement import agreement
from leadline.results.breakdowns import from_memory
from leadline.results.run import logprob_results as measured
from leadline.run.documents import planned_documents
from leadline.run.many_models import submission_entry as entry_of
from leadline.scorers.failure import classify
from leadline.stats.diagnose import diagnose
from leadline.stats.observations import observations
from leadline.stats.sequential import beta_binomial_sequence
from leadline.stats.smooth import smooth
from leadline.store.runs import read_records
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import open_tokenizer

__all__ = [
    "Cell",
    "Completion",
    "Document",
    "Failure",
    "Fitter",
    "Frame",
    "Question",
    "Receipt",
    "Score",
    "TaskSpec",
    "Turns",
    "agreement",
    "beta_binomial_sequence",
    "classify",
    "diagnose",
    "entry_of",
    "from_memory",
    "make_spec",
    "measured",
    "observations",
    "open_tokenizer",
    "planned_documents",
    "projection_outliers",
    "read_records",
    "registry",
    "say",
    "smooth",
]
