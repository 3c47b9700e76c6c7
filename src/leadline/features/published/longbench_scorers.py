"""LongBench's metrics (arXiv 2308.14508, THUDM/LongBench @ 2e00731), to the digit, and stricter ones beside them.

A task names its metric; `score(task, prediction, references, classes)` is the maximum over references, as in the
official `eval.py`. Four tasks count only the first line of an answer.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

from leadline.core.errors import UsageError
from leadline.core.records import Score
from leadline.core.types import Question
from leadline.features.published.benchmark_files import LONGBENCH, Dataset
from leadline.features.published.chinese import chinese_words
from leadline.scorers.answer_sets import names_only
from leadline.scorers.match import RuleScorer
from leadline.scorers.overlap import EditBackend, edit_similarity, rouge_l, rouge_l_google, rouge_lsum_google, token_f1

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


def rouge_chinese(prediction: str, reference: str) -> float:
    return rouge_l(" ".join(chinese_words(prediction)), " ".join(chinese_words(reference)))


def classification(prediction: str, reference: str, classes: Sequence[str]) -> float:
    """One over the number of class names in the answer, if the right one is among them.

    Names that are part of the right one are taken out first, with the official loop, which removes from the list it
    walks over and so may skip a name.
    """
    named = [name for name in classes if name in prediction]
    for name in named:
        if name in reference and name != reference:
            named.remove(name)
    return 1.0 / len(named) if reference in named else 0.0


def count(prediction: str, wanted: str) -> float:
    """The share of the answer's whole numbers that are the right one."""
    numbers = _INTEGER.findall(prediction)
    return numbers.count(wanted) / len(numbers) if numbers else 0.0


def retrieval(prediction: str, reference: str, pattern: str = r"Paragraph (\d+)") -> float:
    named = re.findall(pattern, reference)
    if not named:
        raise UsageError(
            f"the reference {reference[:40]!r} names no paragraph",
            where="LongBench retrieval",
            fix="give the data or predictions of passage_retrieval_en or passage_retrieval_zh",
        )
    return count(prediction, named[0])


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
    "rouge": rouge_l,
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
    """1 or 0 where the official rule gives partial credit for a list of guesses; the official score elsewhere."""
    if task.metric in ("count", "retrieval", "retrieval_zh"):
        return float(len(set(_INTEGER.findall(prediction))) == 1 and score(task, prediction, references) > 0)
    if task.metric == "classification":
        return float(score(task, prediction, references, classes) == 1.0)
    return score(task, prediction, references, classes)


def dataset_of(question: Question, datasets: Mapping[str, Dataset]) -> Dataset:
    if question.dataset not in datasets:
        raise UsageError(
            "a scorer of a published benchmark needs one of its samples",
            where=f"data set {question.dataset!r}",
            fix="use it with the benchmark's own tasks; see docs/longbench.md",
        )
    return datasets[question.dataset]


def _official(question: Question, answer: str, *, backend: EditBackend) -> Score:
    """The metric of the question's data set."""
    dataset = dataset_of(question, LONGBENCH)
    value = score(dataset, answer, question.targets, question.choices, backend)
    metric = dataset.metric + (f" ({backend})" if dataset.metric == "code_similarity" else "")
    return Score(value, explanation=metric, metric=metric)


def _strict(question: Question, answer: str) -> Score:
    """The same, but a list of guesses gets no partial credit."""
    dataset = dataset_of(question, LONGBENCH)
    value = strict_score(dataset, answer, question.targets, question.choices)
    metric = f"{dataset.metric}, strict"
    return Score(value, explanation=metric, metric=metric)


def _google(question: Question, answer: str, *, lsum: bool) -> Score:
    """rougeL or rougeLsum of the rouge_score package with its stemmer, for summaries."""
    rule, name = (rouge_lsum_google, "rougeLsum") if lsum else (rouge_l_google, "rougeL")
    if (dataset := LONGBENCH.get(question.dataset)) and dataset.first_line:
        answer = first_line(answer)
    value = max((rule(answer, reference, stemmed=True) for reference in question.targets), default=0.0)
    return Score(value, explanation=f"{name} (rouge_score, stemmed)")


OFFICIAL = RuleScorer("longbench", partial(_official, backend="difflib"))
LEVENSHTEIN = RuleScorer("longbench.levenshtein", partial(_official, backend="levenshtein"))
STRICT = RuleScorer("longbench.strict", _strict)
GOOGLE = RuleScorer("rouge.google", partial(_google, lsum=False), "2")
GOOGLE_LSUM = RuleScorer("rouge.google_lsum", partial(_google, lsum=True), "2")


# --- LongBench v2 (arXiv 2412.15204): four options, one letter --------------------------------------

_V2_ANSWERS = (re.compile(r"The correct answer is \(([A-D])\)"), re.compile(r"The correct answer is ([A-D])"))
V2_COMPENSATION = 0.25
"""What the official `result.py` may give an answer without a letter; off by default there and here."""


def v2_choice(response: str) -> str | None:
    """The letter an answer states, asterisks aside; None without one."""
    text = response.replace("*", "")
    return next((match.group(1) for pattern in _V2_ANSWERS if (match := pattern.search(text))), None)


def _right_choice(question: Question, answer: str, *, unstated: float = 0.0) -> Score:
    """1 for the right letter, 0 for another, `unstated` for none."""
    letter = v2_choice(answer)
    if letter is None:
        return Score(unstated, explanation="no letter stated")
    return Score(float(letter in question.targets), answer=letter)


V2 = RuleScorer("longbench_v2", _right_choice)
V2_COMPENSATED = RuleScorer("longbench_v2.compensated", partial(_right_choice, unstated=V2_COMPENSATION))


# --- BABILong (arXiv 2406.10149): one place or person of a closed list ------------------------------

_PLACES = frozenset({"bathroom", "bedroom", "garden", "hallway", "kitchen", "office"})
BABILONG_LABELS = {
    **dict.fromkeys(("qa1", "qa2", "qa3", "qa4"), _PLACES),
    "qa5": frozenset({"bill", "fred", "jeff", "mary", "apple", "football", "milk"}),
    **dict.fromkeys(("qa6", "qa9", "qa17", "qa18"), frozenset({"yes", "no"})),
    "qa7": frozenset({"none", "one", "two", "three"}),
    "qa8": frozenset({"apple", "football", "milk", "nothing"}),
    "qa10": frozenset({"yes", "no", "maybe"}),
    **dict.fromkeys(("qa11", "qa12", "qa13"), _PLACES),
    "qa14": frozenset({"bedroom", "cinema", "kitchen", "office", "park", "school"}),
    "qa15": frozenset({"cat", "mouse", "sheep", "wolf"}),
    "qa16": frozenset({"gray", "green", "white", "yellow"}),
    "qa19": frozenset("e,e e,n e,s n,e n,n n,w s,e s,s s,w w,n w,s w,w".split()),
    "qa20": frozenset({"bedroom", "bored", "garden", "hungry", "kitchen", "thirsty", "tired"}),
}
"""The labels of a task: the answers that bAbI's questions have (arXiv 1502.05698). An answer of qa8 may be several
things, one of qa19 is a path of two steps."""


def babilong(task: str, prediction: str, reference: str, question: str) -> float:
    """1 when the first sentence names the target and no other label, labels of the question aside."""
    labels = BABILONG_LABELS[task]
    nested = any(inner != label and inner in label for inner in labels for label in labels)  # "one" is in "none"
    if nested:
        words = re.findall(r"\w+", prediction.lower().split(".")[0])
        question_words = set(re.findall(r"\w+", question.lower()))
        return float({word for word in words if word in labels - question_words} == {reference.lower()})
    return names_only(prediction, question, reference, labels)
