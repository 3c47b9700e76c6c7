"""Small data files in the exact formats of LongBench, LongBench v2 and InfiniteBench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def _context(number: int, words: int) -> str:
    return " ".join(f"word{n}" for n in range(words)) + f" Keeper {number} keeps lamp {number}."


def longbench_row(number: int, words: int = 300, **changes: Any) -> dict[str, Any]:
    return {
        "input": f"Who keeps lamp {number}?",
        "context": _context(number, words),
        "answers": [f"Keeper {number}"],
        "length": words,
        "dataset": "hotpotqa",
        "language": "en",
        "all_classes": None,
        "_id": f"{number:048x}",
    } | changes


def longbench_v2_row(number: int, words: int = 300) -> dict[str, Any]:
    return {
        "_id": str(number),
        "domain": "Single-Document QA",
        "sub_domain": "Legal",
        "difficulty": ("easy", "hard")[number % 2],
        "length": "short",
        "question": f"Who keeps lamp {number}?",
        **{f"choice_{letter}": f"Keeper {n}" for n, letter in enumerate("ABCD")},
        "answer": "ABCD"[number % 4],
        "context": _context(number, words),
    }


def infinitebench_row(number: int, words: int = 300) -> dict[str, Any]:
    return {
        "id": number,
        "context": _context(number, words),
        "input": f"Who keeps lamp {number}?",
        "answer": [f"Keeper {number}"],
        "options": ["Ann", "Bo", "Cy", "Di"],
    }


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# --- piles: one row in the published format of each data set, with items that a reader can tell apart

KINDS = ("metal", "river", "bird", "tool", "dance", "spice", "cloud", "gem", "sail", "tree", "drum", "fish")


def _sentence(number: int) -> str:
    return f"item {number} " + " ".join(f"w{number * k % 997}" for k in range(1, 25))


def pile_row(dataset: str, number: int, items: int = 12) -> dict[str, Any]:
    numbers = range(items * number, items * (number + 1))
    kind = KINDS[number % len(KINDS)]
    classes = list(KINDS)
    if dataset in ("trec", "lsht"):
        text, label = ("Question: {}\nType: {}\n", "Question: {}\nType:") if dataset == "trec" else (
            "新闻内容：\n{}\n类别：{}\n", "新闻内容：\n{}\n类别："
        )  # fmt: skip
        context = "".join(text.format(_sentence(n), KINDS[n % len(KINDS)]) for n in numbers)
        # The sample before this one has this sample's input among its demonstrations, solved.
        context += text.format(f"what is asked {number + 1}", KINDS[(number + 1) % len(KINDS)])
        return longbench_row(
            number, context=context, input=label.format(f"what is asked {number}"), answers=[kind], all_classes=classes
        )
    if dataset == "dureader":
        about = [
            f"标题：关于灯塔{number}号的问题\n灯塔{number}号由第{number}位守护人看管。{_sentence(n)}" for n in (1, 2)
        ]
        articles = [*about, *(f"标题：其他\n{_sentence(n)}" for n in numbers)]
        context = "\n\n".join(f"文章{place}\n{article}" for place, article in enumerate(articles, 1))
        return longbench_row(number, context=context, input=f"灯塔{number}号由谁看管", answers=[f"第{number}位守护人"])
    if dataset == "triviaqa":
        context = "".join(f"Passage:\n{_sentence(n)}\nQuestion:\nWhich?\nAnswer:\nitem {n}\n\n" for n in numbers)
        asked = f"Passage:\nthe own passage {number}\nQuestion:\nWhich?\nAnswer:\n"
        return longbench_row(number, context=context, input=asked, answers=[f"own {number}"])
    if dataset == "samsum":
        context = "".join(f"Dialogue: Ann: {_sentence(n)}\r\nBo: yes\nSummary: item {n}.\n" for n in numbers)
        return longbench_row(number, context=context, input=f"Dialogue: own {number}\nSummary: ", answers=["own"])
    if dataset == "repobench-p":
        context = "".join(f"pkg/file_{n}.py\nclass C{n}:\n    x = {n}\n    y = '{_sentence(n)}'\n" for n in numbers)
        return longbench_row(number, context=context, input=f"c = C{items * number}\n", answers=[f"print(c.x{number})"])
    word, colon = ("段落", "：") if dataset == "passage_retrieval_zh" else ("Paragraph ", ": ")
    context = "\n\n".join(f"{word}{place}{colon}{_sentence(n)}" for place, n in enumerate(numbers, 1))
    gold = number % items + 1
    answer = "9" if dataset == "passage_count" else f"{word}{gold}"
    asked = "" if dataset == "passage_count" else f"the summary of item {items * number + gold - 1}"
    return longbench_row(number, context=context, input=asked, answers=[answer])


def mrcr_row(number: int) -> dict[str, Any]:
    """A row in the format of `openai/mrcr`, with white space at the end of its texts."""
    texts = [f"Poem {n} of {number}: reeds, rain and {n * 7} herons.\nAnd so on. " for n in range(4)]
    poem, song = "write a poem about rain", "write a song about snow"
    turns = [
        {"role": role, "content": text}
        for pair in zip([poem, song, poem, poem], texts, strict=True)
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    last = {"role": "user", "content": "Prepend x7Rt to the 2nd (1 indexed) poem about rain. Nothing else."}
    return {
        "prompt": json.dumps([*turns, last]), "answer": f"x7Rt{texts[2]}", "n_needles": 2 + 2 * (number % 2),
        "random_string_to_prepend": "x7Rt", "n_chars": 300,
    }  # fmt: skip


def graphwalks_row(number: int) -> dict[str, Any]:
    """As in openai/graphwalks: a list of edges, an operation, and the nodes of the answer."""
    parents = number % 2 == 0
    asked = f"Find the parents of node n{number}." if parents else f"Perform a BFS from node n{number} with depth 1."
    edges = "\n".join(f"n{n} -> n{n + 1}" for n in range(9))
    nodes = [f"n{number - 1}"] if parents and number else [] if parents else [f"n{number + 1}"]
    prompt = f"The graph has the following edges:\n{edges}\n\nOperation:\n{asked}\nEnd with Final Answer: [nodes]\n"
    return {
        "prompt": prompt,
        "answer_nodes": nodes,
        "prompt_chars": len(prompt),
        "problem_type": "parents" if parents else "bfs",
    }
