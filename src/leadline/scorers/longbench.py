"""LongBench's metrics (arXiv 2308.14508, THUDM/LongBench @ 2e00731), to the digit, and stricter ones beside them.

A task names its metric; `score(task, prediction, references, classes)` is the maximum over references, as in the
official `eval.py`. Four tasks count only the first line of an answer.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

from leadline.core.errors import UsageError
from leadline.core.records import Completion, Score
from leadline.core.types import Probe
from leadline.scorers.chinese import chinese_words
from leadline.scorers.frontier import names_only
from leadline.scorers.overlap import EditBackend, edit_similarity, rouge_l, rouge_l_google, rouge_lsum_google, token_f1
from leadline.store.benchmark_files import LONGBENCH, Dataset

CHINESE_PUNCTUATION = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃"
    "》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
)
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ALL_PUNCTUATION = str.maketrans("", "", string.punctuation + CHINESE_PUNCTUATION)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_INTEGER = re.compile(r"\d+")


@lru_cache(maxsize=1024)  # an answer is compared with several references
def normalise_english(text: str) -> str:
    """Lower case, no ASCII punctuation, articles replaced by a space, white space collapsed, in this order."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def normalise_chinese(text: str) -> str:
    """Lower case, no punctuation, no white space."""
    return "".join(text.lower().translate(_ALL_PUNCTUATION).split())


def qa_f1(prediction: str, reference: str) -> float:
    return token_f1(normalise_english(prediction).split(), normalise_english(reference).split())


def qa_f1_chinese(prediction: str, reference: str) -> float:
    def tokens(text: str) -> list[str]:
        return [word for word in map(normalise_chinese, chinese_words(text)) if word]

    return token_f1(tokens(prediction), tokens(reference))


def rouge(prediction: str, reference: str) -> float:
    """ROUGE-L of the `rouge` package; 0 where it raises."""
    try:
        return rouge_l(prediction, reference)
    except ValueError:
        return 0.0


def rouge_chinese(prediction: str, reference: str) -> float:
    return rouge(" ".join(chinese_words(prediction)), " ".join(chinese_words(reference)))


def classification(prediction: str, reference: str, classes: Sequence[str]) -> float:
    """One over the number of class names in the answer, if the right one is among them.

    Names that are part of the right one are taken out first, with the official loop, which removes from the list it
    walks over and so may skip a name.
    """
    found = [name for name in classes if name in prediction]
    for name in found:
        if name in reference and name != reference:
            found.remove(name)
    return 1.0 / len(found) if reference in found else 0.0


def _share_of_integers(prediction: str, wanted: str) -> float:
    numbers = _INTEGER.findall(prediction)
    return numbers.count(wanted) / len(numbers) if numbers else 0.0


def count(prediction: str, reference: str) -> float:
    return _share_of_integers(prediction, str(reference))


def retrieval(prediction: str, reference: str, pattern: str = r"Paragraph (\d+)") -> float:
    named = re.findall(pattern, reference)
    if not named:
        raise UsageError(
            f"the reference {reference[:40]!r} names no paragraph",
            where="LongBench retrieval",
            fix="give the data or predictions of passage_retrieval_en or passage_retrieval_zh",
        )
    return _share_of_integers(prediction, named[0])


def retrieval_chinese(prediction: str, reference: str) -> float:
    return retrieval(prediction, reference, r"段落(\d+)")


def code_similarity(prediction: str, reference: str, backend: EditBackend) -> float:
    """Edit similarity of the first line that is no comment and no fence."""
    lines = prediction.lstrip("\n").split("\n")
    line = next((text for text in lines if not ("`" in text or "#" in text or "//" in text)), "")
    return edit_similarity(line, reference, backend)


METRICS: dict[str, Callable[[str, str], float]] = {
    "qa_f1": qa_f1,
    "qa_f1_zh": qa_f1_chinese,
    "rouge": rouge,
    "rouge_zh": rouge_chinese,
    "count": count,
    "retrieval": retrieval,
    "retrieval_zh": retrieval_chinese,
}


def first_line(prediction: str) -> str:
    return prediction.lstrip("\n").split("\n")[0]


def score(
    task: Dataset,
    prediction: str,
    references: Sequence[str],
    classes: Sequence[str] | None = None,
    backend: EditBackend = "difflib",
) -> float:
    """0 to 1: the official score of one answer."""
    if task.first_line:
        prediction = first_line(prediction)
    if task.metric == "classification":
        return max((classification(prediction, r, classes or ()) for r in references), default=0.0)
    if task.metric == "code_similarity":
        return max((code_similarity(prediction, r, backend) for r in references), default=0.0)
    rule = METRICS[task.metric]
    return max((rule(prediction, r) for r in references), default=0.0)


def strict_score(task: Dataset, prediction: str, references: Sequence[str], classes: Sequence[str] | None) -> float:
    """1 or 0 where the official rule gives part of the credit to a list of guesses; the official score elsewhere."""
    if task.metric in ("count", "retrieval", "retrieval_zh"):
        return float(len(set(_INTEGER.findall(prediction))) == 1 and score(task, prediction, references) > 0)
    if task.metric == "classification":
        return float(score(task, prediction, references, classes) == 1.0)
    return score(task, prediction, references, classes)


def dataset_of(probe: Probe, datasets: Mapping[str, Dataset], scorer: str) -> Dataset:
    """The data set that a probe's labels name."""
    name = probe.labels.get("dataset", "")
    if name not in datasets:
        raise UsageError(
            f"scorer {scorer} needs a sample of its benchmark",
            where=probe.cell.key,
            fix="use it with the benchmark's own tasks; see docs/longbench.md",
        )
    return datasets[name]


Variant = Literal["difflib", "levenshtein", "strict", "google", "google_lsum"]


@dataclass(frozen=True, slots=True)
class LongBenchScorer:
    """The metric of the sample's data set; the record's labels name the data set and hold its classes.

    `difflib` and `levenshtein` differ in code tasks only, `strict` gives no part of the credit to a list of guesses,
    `google` and `google_lsum` are rougeL and rougeLsum of the rouge_score package with its stemmer, for summaries.
    """

    name: str
    variant: Variant = "difflib"

    @property
    def version(self) -> str:
        return "2" if self.variant.startswith("google") else "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        text = completion.text
        if self.variant == "google" or self.variant == "google_lsum":
            rule, name = (rouge_l_google, "rougeL") if self.variant == "google" else (rouge_lsum_google, "rougeLsum")
            if (one := LONGBENCH.get(probe.labels.get("dataset", ""))) and one.first_line:
                text = first_line(text)
            value = max((rule(text, reference, stemmed=True) for reference in probe.targets), default=0.0)
            return Score(value, explanation=f"{name} (rouge_score, stemmed)")
        dataset = dataset_of(probe, LONGBENCH, self.name)
        classes = json.loads(probe.labels.get("classes", "[]"))
        if self.variant == "strict":
            return Score(strict_score(dataset, text, probe.targets, classes), explanation=f"{dataset.metric}, strict")
        value = score(dataset, text, probe.targets, classes, self.variant)
        backend = f" ({self.variant})" if dataset.metric == "code_similarity" else ""
        return Score(value, explanation=f"{dataset.metric}{backend}")


OFFICIAL = LongBenchScorer("longbench")
LEVENSHTEIN = LongBenchScorer("longbench.levenshtein", "levenshtein")
STRICT = LongBenchScorer("longbench.strict", "strict")
GOOGLE = LongBenchScorer("rouge.google", "google")
GOOGLE_LSUM = LongBenchScorer("rouge.google_lsum", "google_lsum")


# --- LongBench v2 (arXiv 2412.15204): four options, one letter --------------------------------------

_V2_ANSWERS = (re.compile(r"The correct answer is \(([A-D])\)"), re.compile(r"The correct answer is ([A-D])"))
V2_COMPENSATION = 0.25
"""What the official `result.py` may give an answer without a letter; off by default there and here."""


def v2_choice(response: str) -> str | None:
    """The letter an answer states, asterisks aside; None without one."""
    text = response.replace("*", "")
    return next((match.group(1) for pattern in _V2_ANSWERS if (match := pattern.search(text))), None)


@dataclass(frozen=True, slots=True)
class ChoiceScorer:
    """1 for the right letter, 0 for another or none. `compensated` gives 0.25 where no letter is stated."""

    name: str
    compensated: bool = False
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        letter = v2_choice(completion.text)
        if letter is None:
            return Score(V2_COMPENSATION if self.compensated else 0.0, explanation="no letter stated")
        return Score(float(letter in probe.targets), answer=letter)


V2 = ChoiceScorer("longbench_v2")
V2_COMPENSATED = ChoiceScorer("longbench_v2.compensated", compensated=True)


# --- BABILong (arXiv 2406.10149): one place or person of a closed list ------------------------------

_PLACES = frozenset({"bathroom", "bedroom", "garden", "hallway", "kitchen", "office"})
BABILONG_LABELS = {
    **dict.fromkeys(("qa1", "qa2", "qa3", "qa4"), _PLACES),
    "qa5": frozenset({"bill", "fred", "jeff", "mary", "apple", "football", "milk"}),
}


def babilong(task: str, prediction: str, reference: str, question: str) -> float:
    """1 when the first sentence names the target and no other label, labels of the question aside."""
    return names_only(prediction, question, reference, BABILONG_LABELS[task])
