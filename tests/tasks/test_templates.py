"""Wordings of a user's own: checked at the door, part of the spec, and as exact as ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from leadline.cli.main import run_command
from leadline.console.options import RunOptions, spec_of
from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.contracts import Tokenizer
from leadline.core.errors import UnknownName, UsageError
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document
from leadline.run.identity import manifest_for
from leadline.tasks.templates import read_templates, template_of, with_templates
from leadline.tasks.wording import WordedTask
from leadline.text.chat import completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.fitting import fit
from support.question_data import squad
from support.toy_tokenizers import FAMILIES, SMALL_PROSE, toy_tokenizer

NEEDLES = {
    "instruction": "Some {kinds} are in here:\n",
    "needle": "For {key} the {kind}: {value}",
    "question": "\nSay every {kind} for {key}.",
    "prefix": " They ({kinds}) are: ",
}
DOCUMENTS = {
    "instruction": "Use these. ",
    "document": "== {title}\n{text}",
    "question": " So: {question}",
    "prefix": " My answer:",
}
OWN: dict[str, dict[str, str]] = {
    "niah_*": NEEDLES,
    "vt": {
        "instruction": "Who holds what? ",
        "first": "VAR {name} = {value}",
        "next": "VAR {name} = VAR {other}",
        "question": "\nWhich variables hold {value}?",
        "prefix": " All {count} of {value}: ",
        "demonstration": "{document}{question}{prefix}{spaced}\n",
    },
    "cwe": {
        "instruction": "Count!\n",
        "question": "\nThe {count} most common words?",
        "prefix": " Top {count}: ",
        "demonstration": "{instruction}{document}{question}{prefix}{numbered}\n\n",
    },
    "fwe": {
        "instruction": "Coded, with {noise} for noise: ",
        "question": "\nThe {count} most frequent words without {noise}?",
        "prefix": " They are",
    },
    "qa_*": DOCUMENTS,
    "passkey": {"instruction": "A key: ", "needle": "({key})", "question": "\nThe key?", "prefix": " It is"},
    "number_string": {"instruction": "Digits: ", "needle": "({key})", "question": "\nWhich?", "prefix": " They are"},
    "math_find": {"instruction": "List: ", "question": "\nThe {rank}?", "prefix": " It is"},
    "math_calc": {"instruction": "Sum: ", "question": "\nAll results?", "prefix": " They are"},
    "code_run": {"instruction": "Code:\n", "question": "\nAnd {call}?", "prefix": " It is"},
    "agent_log": {
        "instruction": "Session:\n",
        "line": "{job} ran {command}: {status}",
        "question": "\nFirst failure of {job}?",
        "prefix": " In {job}: ",
    },
    "copy_words": {"instruction": "Copy: ", "question": "\nAgain:", "prefix": ""},
    "lines": {"instruction": "Lines:\n", "line": "{key} has {value}", "question": "\nWhat has {key}?", "prefix": ""},
    "aggregate": {
        "instruction": "Mail ({topics}):\n",
        "count": "\nHow many on {topic}?",
        "most": "\nMost common topic?",
        "least": "\nRarest topic?",
        "compare": "\n{topic} or {other}?",
        "user": "\nHow many by {user}?",
        "user_topic": "\nHow many by {user} on {topic}?",
        "period": "\nHow many on {topic} in {month}?",
        "form": "\nAs: Answer: {what}",
    },
    "graphwalks": {
        "instruction": "Edges:\n",
        "bfs": "\nExactly {hops} steps from {node}?",
        "one_step": "\nOne step from {node}?",
        "parents": "\nWhat leads to {node}?",
        "form": "\nAs: Final Answer: [a, b]",
    },
    "ladder": {
        "instruction": "Tasks:\n",
        "retrieve": "\nCopy {key}.",
        "two_steps": "\nCopy {key}, then solve it.",
        "one_step": "\nSolve {key}.",
        "solve": "\nSolve: {text}",
    },
    "worlds": {
        "instruction": "People: ",
        "person": "\nWhere is {person}?",
        "thing": "\nWhere is the {thing}?",
        "before": "\nWhere was the {thing} before the {place}?",
        "list": "\nWhat has {person}?",
        "giver": "\nWho gave {person} the {thing}?",
        "count": "\nHow many has {person}?",
        "yes_no": "\nIs {person} in the {place}?",
        "prefix": " It is",
    },
    "mrcr": {"question": "Once more, {ordinal} {kind} on {topic}; begin with {code}"},
    "embed": {"item": "<< {item} >>", "question": "\nDo what is in << >>. {how}", "prefix": " So:"},
    "compaction": {"instruction": "Kept: ", "question": "\n{asked}", "prefix": " So:"},
    "tool_calls": {
        "instruction": "Log: ",
        "tool": "{step} by {tool};",
        "tool_changed": "{step} rather by {tool};",
        "argument": "{step}: {argument} = {value};",
        "argument_changed": "{step}: now {argument} = {value};",
        "question": "\nCall {step}.",
    },
    "kv": {"instruction": "Pairs {{}}:\n", "line": "{key} = {value};", "question": "\n{key}=?", "prefix": "{key}="},
}
"""Shapes that ours do not have: no line break before the text, white space around prefixes, lines without a stop."""
PUBLISHED = ("longbench_dataset", "longbench_pile", "longbench_v2", "infinitebench_dataset")
"""Their texts are real and of no exact length: see test_published.py."""
TASKS = [
    name
    for name in registry.names("tasks")
    if isinstance(registry.task(TaskSpec(name=name)), WordedTask) and name not in ("niah", "niah_own", *PUBLISHED)
]
SEED = 5


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("templates")
    (folder / "own.json").write_text(json.dumps(OWN))
    squad(folder / "squad.json")
    return folder


def options_of(name: str, folder: Path) -> dict[str, object]:
    if name in ("qa_1", "qa_2"):
        return {"data": str(folder / "squad.json"), "repeat": True}
    values = registry.task(TaskSpec(name=name)).model_dump(mode="json").values()
    named = {"items": "ordering"} if name == "embed" else {}  # the answer is one of the names in the text
    return {"haystack": SMALL_PROSE, **named} if "prose" in values else {}


@cache
def worded(name: str, folder: Path) -> WordedTask:
    [asked] = with_templates([TaskSpec(name=name, options=options_of(name, folder))], folder / "own.json")
    task = registry.task(asked)
    assert isinstance(task, WordedTask)
    return task


def written(task: WordedTask, cells: Sequence[Cell], tokens: Tokenizer) -> Document:
    document = fit(task.write(cells, seed=SEED), tokens, completion_frame())
    for probe in document.probes:
        ids = document.prompt_ids(probe)
        assert len(ids) == probe.prompt_tokens == probe.cell.length - probe.question.allowance
        assert list(tokens.encode(document.prompt_text(probe))) == list(ids)
    return document


# --- as exact as ours ---


OTHERS = (*(family for family in FAMILIES if family != "gpt2"), "bytes")


@pytest.mark.quick_cases(12, family=("gpt2",))
@pytest.mark.parametrize(
    ("name", "family"),
    [
        (name, f)
        for i, name in enumerate(TASKS)
        for f in ("gpt2", OTHERS[i % len(OTHERS)], OTHERS[(i + 2) % len(OTHERS)])
    ],
)
def test_a_prompt_in_other_words_is_exact_in_every_kind_of_tokenizer(name: str, family: str, files: Path) -> None:
    """Every task in three of the tokenizers and every tokenizer with a third of the tasks; test_tasks_contract.py has
    every task in every tokenizer, in our words."""
    tokens: Tokenizer = ByteTokenizer() if family == "bytes" else toy_tokenizer(family)
    length = 14_000 if family == "bytes" else 6_000
    for sample in range(2):
        written(worded(name, files), [Cell(name, length, 0.4, sample)], tokens)


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize("reading", ["shared", "nested"])
@pytest.mark.parametrize("name", TASKS)
def test_other_words_can_be_read_in_every_mode(name: str, reading: str, files: Path) -> None:
    task = worded(name, files)
    if reading not in task.readings:
        pytest.skip(f"{name} cannot be read {reading}")
    lengths = (9000,) if reading == "shared" else (7000, 14_000)
    depths = (None,) if name in ("cwe", "fwe") else (0.2, 0.8)
    cells = [Cell(name, length, depth, 0) for length in lengths for depth in depths]
    assert len(written(task, cells, toy_tokenizer(FAMILIES[0])).probes) == len(cells)


@pytest.mark.parametrize("name", TASKS)
def test_a_prompt_says_what_the_file_says(name: str, files: Path) -> None:
    document = written(worded(name, files), [Cell(name, 3000, 0.5, 0)], WhitespaceTokenizer())
    [probe] = document.probes
    given = next(texts for section, texts in OWN.items() if Path(name).match(section))
    for part in ("instruction", "question", "prefix"):
        start = given.get(part, "").partition("{")[0].strip()
        assert start in document.prompt_text(probe), part
    planted = {"needle", "line", "first", "document"} & given.keys()
    assert all(given[part].partition("{")[0] in fact.text for part in planted for fact in document.facts[:1])
    body = document.text[document.body_start_characters :]
    targets = probe.question.targets[:1]
    if name == "tool_calls":  # the target is a call that is put together from the text
        targets = tuple(map(str, json.loads(targets[0])["arguments"].values()))
    assert all(target.removeprefix(probe.question.code_word).strip() in body for target in targets)


@pytest.mark.parametrize("name", ["niah_single_1", "niah_multikey_2", "niah_multivalue", "vt", "cwe", "fwe"])
def test_a_reader_still_finds_the_answer(name: str, files: Path) -> None:
    document = written(worded(name, files), [Cell(name, 3000, 0.5, 1)], WhitespaceTokenizer())
    [probe] = document.probes
    model = registry.provider(registry.ModelName.parse("sim:perfect")).open("perfect")
    [answer] = model.answer(document, [probe])
    assert isinstance(answer.outcome, Completion)
    assert registry.scorer("ruler.v1").score(probe.question, answer.outcome).value == 1.0


def test_other_words_leave_keys_values_and_places_as_they_were(files: Path) -> None:
    cell = Cell("niah_multikey_1", 3000, 0.5, 3)
    ours = registry.task(TaskSpec(name="niah_multikey_1", options={"haystack": SMALL_PROSE})).write([cell], seed=SEED)
    theirs = worded("niah_multikey_1", files).write([cell], seed=SEED)
    assert ours.questions[0].targets == theirs.questions[0].targets
    assert [f.depth for f in ours.facts] == [f.depth for f in theirs.facts]
    assert {f.text for f in ours.facts}.isdisjoint(f.text for f in theirs.facts)


def test_names_are_never_a_word_of_the_wording(files: Path) -> None:
    task = worded("vt", files).model_copy(update={"letters": 3})
    names = {n for s in range(200) for n in task.write([Cell("vt", 3000, 0.5, s)], seed=0).questions[0].targets}
    assert "VAR" not in names
    assert len(names) > 900


# --- part of the spec ---


def test_the_wording_is_in_the_spec_its_digest_and_the_manifest(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[vt]\nquestion = "\\nWhich hold {value}?"\n')
    plain = spec_of(RunOptions(what="vt", model="sim:perfect"))
    spec = spec_of(RunOptions(what="vt", model="sim:perfect", templates=path))
    assert spec.tasks[0].options == {"wording": {"question": ["\nWhich hold {value}?"]}}
    assert spec.digest != plain.digest
    model = registry.provider(registry.ModelName.parse("sim:perfect")).open("perfect")
    fitter = Fitter(model.tokenizer, model.frame)
    made = manifest_for(spec, {"vt": registry.task(spec.tasks[0])}, model, fitter, planned=1)
    assert "Which hold" in made.fingerprints["task.vt.wording"]
    assert made.tasks["vt"]["options"]["wording"] == {"question": ["\nWhich hold {value}?"]}


@pytest.mark.parametrize("name", [*TASKS, "niah"])
def test_what_is_printed_to_start_from_is_the_default(name: str, tmp_path: Path) -> None:
    task = registry.task(TaskSpec(name=name))
    assert isinstance(task, WordedTask)
    path = tmp_path / "printed.toml"
    path.write_text(template_of(name, task))
    assert read_templates(path)[name] == {part: about.default for part, about in task.parts().items()}
    with_templates([TaskSpec(name=name)], path)


def test_an_exact_name_goes_before_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[niah_single_3]\nprefix = "the code"\n["niah_*"]\nprefix = "the number"\nquestion = " {key}?"\n')
    made = with_templates([TaskSpec(name="niah_single_3"), TaskSpec(name="niah_single_1")], path)
    assert [t.options["wording"]["prefix"] for t in made] == [("the code",), ("the number",)]
    assert all(t.options["wording"]["question"] == (" {key}?",) for t in made)


# --- checked at the door ---

WRONG = [
    ('[vt]\nquestion = "\\nWhich hold {valeu}?"', "unknown placeholder 'valeu'", "did you mean 'value'"),
    ('[vt]\nquestion = "\\nWhich hold it?"', "the text lacks {value}", "add {value} to the text"),
    ('[vt]\nfirst = "{name} = {value}\\n"', "no white space around it", "line breaks"),
    ('[vt]\nnext = "{name} = {other"', "not a template", "write {{ and }}"),
    ('[vt]\nnext = "{name.upper} = {other}"', "not a plain name", "{{ and }}"),
    ('[vt]\ndemonstration = "{document}{question}\\n"', "lacks {answer} or {spaced} or {numbered}", "to the text"),
    ('[vt]\nquestoin = "\\n{value}"', "unknown part 'questoin'", "did you mean 'question'"),
    ('[vt]\nquestion = ["\\n{value}?", "\\nWho holds {value}?"]', "2 texts where one is used", "give one"),
    ("[vt]\nquestion = 3", "neither a text nor a list", "write"),
    ("vt = 3", "a section holds texts", "write"),
    ('[tv]\nquestion = "\\n{value}"', "unknown task 'tv'", "did you mean 'vt'"),
    ("[cwe]\n", "no section is about vt", "[cwe]"),
    ("[vt", "not TOML", "--template"),
]


@pytest.mark.parametrize(("text", "what", "fix"), WRONG)
def test_what_cannot_be_is_named_with_its_place_and_a_way_out(text: str, what: str, fix: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        spec_of(RunOptions(what="vt", model="sim:perfect", templates=path))
    assert what in caught.value.what
    assert str(path) in caught.value.where
    assert fix in caught.value.fix


def test_a_line_that_the_haystack_is_made_of_has_one_key_and_then_one_value(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    for needle in ("{value} is for {key}", "{key}, {key}: {value}"):
        path.write_text(f'[niah_multikey_2]\nneedle = "{needle}"\n')
        with pytest.raises(UsageError, match="made of such lines"):
            with_templates([TaskSpec(name="niah_multikey_2")], path)


def test_a_task_without_texts_is_refused_and_a_wrong_option_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"prompts": {"question": "x"}}')
    with pytest.raises(UsageError, match="no texts to replace"):
        with_templates([TaskSpec(name="prompts")], path)
    with pytest.raises(UnknownName, match="placeholder 'what'"):
        registry.task(TaskSpec(name="vt", options={"wording": {"prefix": "{what}"}}))


def test_a_file_and_the_number_of_a_wording_go_together(tmp_path: Path) -> None:
    path = tmp_path / "texts.toml"
    path.write_text('[niah]\ninstruction = "Read this.\\n\\n"\n')
    [asked] = with_templates([TaskSpec(name="niah", options={"wording": "2"})], path)
    task = registry.task(asked)
    assert isinstance(task, WordedTask)
    assert task.texts("instruction") == ("Read this.\n\n",)
    assert task.texts("needle") == (task.parts()["needle"].default[1],)


# --- taken as it is ---


def test_texts_without_white_space_beside_the_document_are_used_and_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    path.write_text('[lines]\ninstruction = "Read this:"\nquestion = "Which one has {key}?"\nprefix = " It is: "\n')
    command = ["build", "lines", "--tokenizer", "bytes", "--templates", str(path), "-o", str(tmp_path / "out.jsonl")]
    assert run_command([*command, "--lengths", "2k", "--depths", "2", "--samples", "1"]) == 0
    told = capsys.readouterr().err
    assert "[lines], instruction: the document follows it without white space: 'Read this:'" in told
    assert "[lines], question: it follows the document without white space" in told
    for row in (tmp_path / "out.jsonl").read_text().splitlines():
        built = json.loads(row)
        prompt = built["prompt"] + built["answer_prefix"]
        assert prompt.startswith("Read this:")
        assert not prompt[len("Read this:")].isspace()
        assert "Which one has " in prompt
        assert prompt.endswith(" It is: ")


@pytest.mark.parametrize("question", ["Next line of code:\n", "{input}Next line of code:\n"])
def test_published_prompts_may_leave_the_question_out_or_add_it(question: str) -> None:
    wording = {"instruction": "Complete the code. \n", "question": question}
    task = registry.task(TaskSpec(name="longbench_dataset", options={"dataset": "lcc", "wording": wording}))
    assert isinstance(task, WordedTask)
    assert task.texts("question") == (question,)
