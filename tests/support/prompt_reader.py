"""A simulated model that answers from the text of its prompt alone.

It is given no targets, no facts and no task: it recognises a question by its wording, reads the text before it, and
works the answer out anew. So a task whose targets do not follow from what its prompt says is found out. What it knows
besides is language: the pairs of words that mean the same, and what an action implies.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files

from support.fiction_reader import read_answer

UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
VALUE = rf"{UUID}|\d+|[a-z]+-[a-z]+"
Reader = Callable[[str, re.Match[str]], str | None]


class CannotRead(Exception):
    """No reader knows the question of this prompt."""


def answer_from_text(prompt: str) -> str:
    """The answer to the question of a prompt."""
    for asked, read in READERS:
        questions = list(re.finditer(asked, prompt, re.DOTALL))
        if questions:
            question = questions[-1]
            before, after = prompt[: question.start()], prompt[question.end() :]
            body = before if len(before) > len(after) else before + after  # the question may stand before the text
            answer = read(body, question)
            return _reply_where_absent(prompt[question.start() :]) if answer is None else answer
    raise CannotRead(prompt[-300:])


def _reply_where_absent(question: str) -> str:
    stated = re.search(r'If (?:the text does not say|there is no such item), answer "([^"]+)"', question)
    return stated[1] if stated else "The text does not say."


def _one_or_none(values: Iterable[str]) -> str | None:
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else None


# --- needles ---

NEEDLE = (
    r"Question: (?:Which|What is the|What are all the|According to the text, which) (?P<kind>\w+?)s? "
    r"(?:belongs? to|that goe?s? with|is the one for|are the ones for) (?P<keys>[^?]+)\?"
)


def _needles(body: str, question: re.Match[str]) -> str | None:
    keys = re.split(r", | and ", question["keys"]) if not question["keys"].startswith("the ") else [question["keys"]]
    values = [value for key in keys for value in _values_of(body, question["kind"], key)]
    return ", ".join(values) or None


def _values_of(body: str, kind: str, key: str) -> list[str]:
    if key.startswith("the person who "):
        return _values_by_association(body, key.removeprefix("the person who "))
    if key.startswith("the "):
        return _values_by_paraphrase(body, key)
    if " pieces at different places" in body:
        return _value_in_pieces(body, key)
    name = rf"(?<![\w-]){re.escape(key)}(?![\w-])"
    values = [
        value
        for sentence in _sentences(body)
        if re.search(name, sentence) and re.search(rf"\b{kind}\b", sentence)
        for value in re.findall(rf"(?<![\w-])(?:{VALUE})(?![\w-])", re.sub(name, " ", sentence))
    ]
    return values[-1:] if "the later mention counts" in body else values


def _sentences(body: str) -> list[str]:
    return re.split(r"(?<=[.!?])[\"”»]?\s+|\n", body)


def _value_in_pieces(body: str, key: str) -> list[str]:
    about = [s for s in _sentences(body) if re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", s)]
    signs = {"begins|opens|starts": "", "goes on|middle": "", "ends|closes|at its end": ""}
    for told in signs:
        for sentence in (s for s in about if re.search(told, s)):
            signs[told] = re.findall(r"\d+", sentence.replace(key, " "))[0]
    return [value] if (value := "".join(signs.values())) else []


def _values_by_paraphrase(body: str, asked: str) -> list[str]:
    same = _same_meaning()
    person = next(person for person in same if asked.startswith(f"{person} ") and asked[len(person) + 1 :] in same)
    return _values_beside(body, f"{same[person]} {same[asked[len(person) + 1 :]]}")


def _values_by_association(body: str, implied: str) -> list[str]:
    return [value for action in _associations()[implied] for value in _values_beside(body, action)]


def _values_beside(body: str, words: str) -> list[str]:
    return [
        v for s in _sentences(body) if words in s for v in re.findall(rf"(?<![\w-])(?:{UUID}|\d{{5,}})(?![\w-])", s)
    ]


@cache
def _same_meaning() -> dict[str, str]:
    lines = (files("leadline.tasks") / "paraphrases.txt").read_text().splitlines()
    pairs = (line.split(" | ") for line in lines if " | " in line and not line.startswith("#"))
    return {asked.strip(): said.strip() for said, asked in pairs}


@cache
def _associations() -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for line in (files("leadline.tasks") / "associations.txt").read_text().splitlines():
        if line.startswith("== "):
            heading = re.sub(r"\s*@.*", "", line[3:]).strip()
            table[heading] = []
        elif line.strip() and not line.startswith("#"):
            table[heading].append(line.strip())
    return table


def _own_needle(body: str, question: re.Match[str]) -> str:
    """The sentence that has the most words of the question."""
    asked = set(re.findall(r"\w{3,}", question["own"].lower()))
    return max(_sentences(body), key=lambda sentence: len(asked & set(re.findall(r"\w{3,}", sentence.lower()))))


def _stated(pattern: str) -> Reader:
    def read(body: str, question: re.Match[str]) -> str | None:
        named = {name: re.escape(value) for name, value in question.groupdict().items()}
        return _one_or_none(re.findall(pattern.format(**named), body))

    return read


# --- tracing and counting ---


def _variables(body: str, question: re.Match[str]) -> str:
    holds = {question["value"]}
    assigned = re.findall(r"\bLET (\w+) = (\w+)\.", body)
    for _ in assigned:
        holds |= {name for name, value in assigned if value in holds}
    return " ".join(sorted(holds - {question["value"]}))


def _common_words(body: str, question: re.Match[str]) -> str:
    shown = body.rpartition("Keep count of them")[2]
    counts = Counter(re.findall(r"\d+\. (\w+)", shown))
    return ", ".join(word for word, _ in counts.most_common(int(question["count"])))


def _coded_words(body: str, question: re.Match[str]) -> str:
    shown = body.rpartition("Keep count of the coded words")[2].partition("\n\n")[2]
    counts = Counter(re.findall(r"\b[a-z]+\b", shown))
    return ", ".join(word for word, _ in counts.most_common(int(question["count"])))


def _fiction(body: str, question: re.Match[str]) -> str | None:
    return read_answer(body, question[0])


# --- graphs, records, worlds ---


def _edges(body: str) -> list[tuple[str, str]]:
    return re.findall(r"^(\w+) -> (\w+)$", body, re.MULTILINE)


def _final(nodes: Iterable[str]) -> str:
    return f"Final Answer: [{', '.join(sorted(set(nodes)))}]"


def _reached(body: str, question: re.Match[str]) -> str:
    edges, hops = _edges(body), {"one": 1}.get(question["hops"]) or int(question["hops"])
    seen, now = {question["node"]}, {question["node"]}
    for _ in range(hops):
        now = {end for start, end in edges if start in now} - seen
        seen |= now
    return _final(now)


def _parents(body: str, question: re.Match[str]) -> str:
    node = question["node"]
    return _final(start for start, end in _edges(body) if end == node and start != node)


def _records(body: str) -> list[tuple[str, str, str, str]]:
    return re.findall(r"^([^|\n]+) \| \d+ (\w+ \d+) \| ([^|\n]+) \| ([^|\n]+)$", body, re.MULTILINE)


def _count_records(body: str, question: re.Match[str]) -> str:
    named = {name: value for name, value in question.groupdict().items() if value}
    return "Answer: " + str(
        sum(
            named.get("user", user) == user
            and named.get("topic", topic) == topic
            and (named.get("month", month) == month or month.startswith(named.get("month", month)))
            for user, month, _, topic in _records(body)
        )
    )


def _extreme_topic(body: str, question: re.Match[str]) -> str:
    counts = Counter(topic for *_, topic in _records(body))
    listed = re.findall(r"which is one of these: ([^.]+)\.", body)[-1]
    topics = re.split(r", | and ", listed)
    pick = max if question["which"] == "most" else min
    return "Answer: " + pick(topics, key=lambda topic: counts[topic])


def _compare_topics(body: str, question: re.Match[str]) -> str:
    counts = Counter(topic for *_, topic in _records(body))
    gap = counts[question["topic"]] - counts[question["other"]]
    return "Answer: " + ("more common" if gap > 0 else "less common" if gap < 0 else "same frequency")


class _World:
    """Where everybody and everything is, told event by event."""

    def __init__(self, body: str) -> None:
        self.places: dict[str, str] = {}
        self.holder: dict[str, str] = {}
        self.paths: dict[str, list[str]] = {}
        self.gifts: dict[tuple[str, str], list[str]] = {}
        thing = r"the (\w+ \w+)"
        events = (
            rf"\b([A-Z]\w+) (?:(?:went|walked over|moved) to the (\w+)\.|(?:picked up|took|got hold of) {thing}\."
            rf"|(?:put down|dropped) {thing}\.|left {thing} behind\.|(?:gave|handed|passed) {thing} (?:on )?to (\w+)\.)"
        )
        for person, place, taken, put, left, given, other in re.findall(events, body):
            self._happen(person, place, taken, put or left, given, other)

    def _happen(self, person: str, place: str, taken: str, dropped: str, given: str, other: str) -> None:
        if place:
            self.places[person] = place
        elif taken:
            self.holder[taken] = person
        elif dropped:
            self.holder.pop(dropped, None)
        else:
            self.gifts.setdefault((given, other), []).append(person)
            self.holder[given] = other
        for thing, holder in self.holder.items():
            path = self.paths.setdefault(thing, [])
            if self.places.get(holder) and path[-1:] != [self.places[holder]]:
                path.append(self.places[holder])


def _world(answer: Callable[[_World, re.Match[str]], str | None]) -> Reader:
    def read(body: str, question: re.Match[str]) -> str | None:
        return answer(_World(body), question) if all(name in body for name in question.groupdict().values()) else None

    return read


def _place_of_thing(world: _World, question: re.Match[str]) -> str | None:
    path = world.paths.get(question["thing"], [])
    return path[-1] if path else None


def _place_before(world: _World, question: re.Match[str]) -> str | None:
    path = world.paths.get(question["thing"], [])
    last = max((i for i, place in enumerate(path) if place == question["place"]), default=0)
    return path[last - 1] if last else None


def _carried(world: _World, question: re.Match[str]) -> list[str]:
    return [thing for thing, holder in world.holder.items() if holder == question["person"]]


NUMBER_WORDS = "zero one two three four five six seven eight nine ten".split()

# --- copies, programs, sums, logs ---


def _copied_text(body: str, question: re.Match[str]) -> str:
    return body.partition("write nothing else.")[2].partition("\n\nNow answer the question")[0].strip()


def _item(body: str, question: re.Match[str]) -> str | None:
    ordinals = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
    asked = rf"(?:User:|^)\s*Write an? {re.escape(question['what'])}\.\n\nAssistant: (.*?)(?=\n\nUser:)"
    items = re.findall(asked, body + "\n\nUser:", re.DOTALL | re.MULTILINE)
    number = ordinals.index(question["ordinal"])
    return f"{question['code']} {items[number]}" if number < len(items) else None


def _ladder_question(body: str, key: str) -> str:
    return str(re.findall(rf"^Question {key}: (.*)$", body, re.MULTILINE)[0])


def _solved(text: str) -> str:
    numbers = list(map(int, re.findall(r"\d+", text)))
    return f"Answer: {max(numbers) if text.startswith('Largest') else min(numbers)}"


def _copy_and_solve(body: str, question: re.Match[str]) -> str:
    text = _ladder_question(body, question["key"])
    return f"{text}\n{_solved(text)}"


def _returned(body: str, question: re.Match[str]) -> str:
    bodies = dict(re.findall(r"def (\w+)\(x\):\n    return (.+)", body))
    total, name = int(question["value"]), question["function"]
    while True:
        called = re.fullmatch(r"(?:(\w+)\(x\)|x) ([+-]) (\d+)", bodies[name])
        assert called is not None, bodies[name]
        total += int(called[3]) if called[2] == "+" else -int(called[3])
        if called[1] is None:
            return str(total)
        name = called[1]


def _sums(body: str, question: re.Match[str]) -> str:
    total, results = 0, []
    for sign, number in re.findall(r"([+-]) (\d+)", body.rpartition("keep every result.")[2]):
        total += int(sign + number)
        results.append(str(total))
    return ", ".join(results)


def _ranked_number(body: str, question: re.Match[str]) -> str:
    numbers = sorted(map(int, re.findall(r"\d+", body.rpartition("Numbers:")[2])))
    ranks = {
        "largest": numbers[-1], "smallest": numbers[0], "second largest": numbers[-2], "second smallest": numbers[1],
        "third largest": numbers[-3], "third smallest": numbers[2], "median": numbers[(len(numbers) - 1) // 2],
    }  # fmt: skip
    return str(ranks[question["rank"]])


def _failed_command(body: str, question: re.Match[str]) -> str | None:
    job = re.escape(question["job"])
    log = (
        rf"\[{job}\] \$ ([\w-]+) -> exit (\d+)|job {job}: `([\w-]+)` ended with status (\d+)"
        rf'|\{{"job": "{job}", "command": "([\w-]+)", "exit_status": (\d+)\}}'
    )
    runs = [[part for part in line if part] for line in re.findall(log, body)]
    failed = [command for command, status in runs if status != "0"]
    return (failed[0] if "first" in question[0] else failed[-1]) if failed else None


READERS: tuple[tuple[str, Reader], ...] = (
    (r"Question: What is the pass key\?", _stated(r"The pass key is (\d+)\.")),
    (r"Question: What is the sequence of digits\?", _stated(r"The sequence of digits is (\d+)\.")),
    (r'Question: What is the value of the key "(?P<key>[^"]+)"', _stated(r'"{key}": "([^"]+)"')),
    (r"Question: What is the content of line (?P<key>[\w-]+)", _stated(r"line {key}: its content is (\S+)\.")),
    (r"Question: Which variables hold the value (?P<value>\d+)", _variables),
    (r"Question: Which (?P<count>\d+) words are the most common", _common_words),
    (r"Question: Which (?P<count>\d+) coded words are the most frequent", _coded_words),
    (r"Question: Which nodes can be reached from (?P<node>\w+) in (?P<hops>\w+) steps?", _reached),
    (r"Question: Which nodes have an edge that leads to (?P<node>\w+)\?", _parents),
    (r"Question: How many of the messages are about (?P<topic>\w+)\?", _count_records),
    (r"Question: How many messages did (?P<user>\w+) write\?", _count_records),
    (r"Question: How many of the messages that (?P<user>\w+) wrote are about (?P<topic>\w+)\?", _count_records),
    (r"Question: How many of the messages written in (?P<month>\w+(?: \d+)?) are about (?P<topic>\w+)", _count_records),
    (r"Question: Which topic do the (?P<which>most|fewest) messages have", _extreme_topic),
    (
        r"Question: Are messages about (?P<topic>\w+) more common than messages about (?P<other>\w+),",
        _compare_topics,
    ),
    (r"Question: In which place is (?P<person>[A-Z]\w+) at", _world(lambda w, q: w.places.get(q["person"]))),
    (r"Question: In which place is the (?P<thing>[\w ]+) at", _world(_place_of_thing)),
    (r"Question: In which place was the (?P<thing>[\w ]+) before it came to the (?P<place>\w+)", _world(_place_before)),
    (r"Question: What does (?P<person>\w+) carry", _world(lambda w, q: ", ".join(_carried(w, q)) or None)),
    (
        r"Question: Who gave the (?P<thing>[\w ]+) to (?P<person>\w+)",
        _world(lambda w, q: w.gifts.get((q["thing"], q["person"]), [None])[-1]),
    ),
    (r"Question: How many things does (?P<person>\w+) carry", _world(lambda w, q: NUMBER_WORDS[len(_carried(w, q))])),
    (
        r"Question: Is (?P<person>\w+) in the (?P<place>\w+) at",
        _world(lambda w, q: "yes" if w.places.get(q["person"]) == q["place"] else "no"),
    ),
    (r"\n\nThe text ends here\. Write it again, exactly as it is\.", _copied_text),
    (
        r"Repeat, word for word, the (?P<ordinal>\w+) (?P<what>.+? about .+?) that you wrote in this conversation\. "
        r"Begin your answer with (?P<code>\w+) ",
        _item,
    ),
    (r"Copy question (?P<key>\d+) word for word, without", lambda body, q: _ladder_question(body, q["key"])),
    (r"First copy question (?P<key>\d+) word for word, then solve", _copy_and_solve),
    (r"Solve question (?P<key>\d+)\.", lambda body, q: _solved(_ladder_question(body, q["key"]))),
    (r"Solve this question\. (?P<text>[^?]+\?)", lambda body, q: _solved(q["text"])),
    (r"Question: What does (?P<function>\w+)\((?P<value>-?\d+)\) return", _returned),
    (r"Write down the result after each operation", _sums),
    (r"Question: Which is the (?P<rank>[\w ]+) number in the list", _ranked_number),
    (r"Question: Which command (?:failed first|was the last to fail) in the job (?P<job>[\w-]+)\?", _failed_command),
    (NEEDLE, _needles),
    (r"\n\nAnswer the question in as few words as you can\.\nQuestion: [^\n]*", _fiction),
    (r"\n\n(?P<own>What is the best thing to do on a rainy day in Porto\?)", _own_needle),
)  # fmt: skip
