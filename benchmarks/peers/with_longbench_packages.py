"""LongBench's scores by the packages that its own script uses: rouge 1.0.1, fuzzywuzzy 0.18 and jieba 0.42.

Called by ../scoring.py as  with_longbench_packages.py FOLDER OUT; writes {task: score} as JSON to OUT. The rules are
those of the benchmark (arXiv 2308.14508, THUDM/LongBench @ 2e00731), written plainly; nothing of Leadline is used.
"""

# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import json
import re
import string
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import jieba
from fuzzywuzzy import fuzz
from rouge import Rouge

CHINESE_PUNCTUATION = (
    "！？｡。＂＃＄％＆＇（）＊＋，－／：；＜＝＞＠［＼］＾＿｀｛｜｝～｟｠｢｣､、〃"
    "》「」『』【】〔〕〖〗〘〙〚〛〜〝〞〟〰〾〿–—‘’‛“”„‟…‧﹏."
)
FIRST_LINE = ("trec", "triviaqa", "samsum", "lsht")
Metric = Callable[[str, str, Sequence[str]], float]


def f1(prediction: list[str], reference: list[str]) -> float:
    same = sum((Counter(prediction) & Counter(reference)).values())
    return 2 * same / (len(prediction) + len(reference)) if same else 0.0


def english(prediction: str, reference: str, classes: Sequence[str]) -> float:
    def tokens(text: str) -> list[str]:
        bare = "".join(c for c in text.lower() if c not in string.punctuation)
        return re.sub(r"\b(a|an|the)\b", " ", bare).split()

    return f1(tokens(prediction), tokens(reference))


def chinese(prediction: str, reference: str, classes: Sequence[str]) -> float:
    left_out = set(string.punctuation + CHINESE_PUNCTUATION)

    def tokens(text: str) -> list[str]:
        bare = ("".join("".join(c for c in w.lower() if c not in left_out).split()) for w in jieba.cut(text))
        return [word for word in bare if word]

    return f1(tokens(prediction), tokens(reference))


def rouge(prediction: str, reference: str, classes: Sequence[str]) -> float:
    try:
        return float(Rouge().get_scores([prediction], [reference], avg=True)["rouge-l"]["f"])
    except (ValueError, RecursionError):
        return 0.0


def rouge_chinese(prediction: str, reference: str, classes: Sequence[str]) -> float:
    return rouge(" ".join(jieba.cut(prediction)), " ".join(jieba.cut(reference)), classes)


def classification(prediction: str, reference: str, classes: Sequence[str]) -> float:
    found = [name for name in classes if name in prediction]
    for name in found:
        if name in reference and name != reference:
            found.remove(name)
    return 1 / len(found) if reference in found else 0.0


def numbers(prediction: str, wanted: str) -> float:
    said = re.findall(r"\d+", prediction)
    return said.count(wanted) / len(said) if said else 0.0


def count(prediction: str, reference: str, classes: Sequence[str]) -> float:
    return numbers(prediction, str(reference))


def retrieval(prediction: str, reference: str, classes: Sequence[str]) -> float:
    return numbers(prediction, re.findall(r"(?:Paragraph |段落)(\d+)", reference)[0])


def code(prediction: str, reference: str, classes: Sequence[str]) -> float:
    lines = prediction.lstrip("\n").split("\n")
    line = next((text for text in lines if not any(mark in text for mark in ("`", "#", "//"))), "")
    return float(fuzz.ratio(line, reference)) / 100


METRICS: dict[Metric, str] = {
    english: "narrativeqa qasper multifieldqa_en hotpotqa 2wikimqa musique triviaqa",
    chinese: "multifieldqa_zh",
    rouge: "gov_report qmsum multi_news samsum",
    rouge_chinese: "dureader vcsum",
    classification: "trec lsht",
    count: "passage_count",
    retrieval: "passage_retrieval_en passage_retrieval_zh",
    code: "lcc repobench-p",
}


def main(folder: Path, out: Path) -> None:
    scores = {}
    for metric, tasks in METRICS.items():
        for task in tasks.split():
            values = []
            for line in (folder / f"{task}.jsonl").read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                said = row["pred"].lstrip("\n").split("\n")[0] if task in FIRST_LINE else row["pred"]
                values.append(max(metric(said, wanted, row["all_classes"] or ()) for wanted in row["answers"]))
            scores[task] = round(100 * sum(values) / len(values), 2)
    out.write_text(json.dumps(scores))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
