"""`tool_calls`: tools declared as the model's template does, and calls graded step by step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.errors import LengthError, TokenizerError
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document, Question
from leadline.features.tool_calls.report import call_steps, tool_calls_section
from leadline.features.tool_calls.scorers import TOOL_CALLS, TOOL_CALLS_TOOL
from leadline.models.openai.http import HttpReply, HttpRequest, served_by
from leadline.report.page import page
from leadline.results.run import Run, load_run
from leadline.run.measure import measure
from leadline.stats.intervals import mean_interval
from leadline.text.chat import ChatTemplate, completion_frame
from leadline.text.fitting import Fitter
from leadline.text.tokenizers import ByteTokenizer, WhitespaceTokenizer
from support.agent_readers import solve_call
from support.chat_templates import SOURCES
from support.exact_lengths import TOKENIZERS, is_exact, opened

TOOLS_IN = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools>{% endif %}",
    "{% if tools %}# Tools\n{{ tools | tojson(indent=2) }}\n\n{% endif %}",
    "{% if tools is not none %}{% for t in tools %}[{{ t.function.name }}: {{ t.function.description }}]{% endfor %}"
    "{% endif %}",
)
"""Ways in which templates write tools; none is a real model's text."""
WANTED = {"name": "seal_vault", "arguments": {"target": "elm-tree", "owner": "ash-tree", "count": 4111, "code": 4222}}
MISTAKES = {"stale tool": ("mount_cache",), "near miss": ("seal_vaults",), "stale value": ("oak-tree", "4999")}


def call(name: str = "seal_vault", **changed: Any) -> str:
    arguments = {**WANTED["arguments"], **changed}  # type: ignore[dict-item]
    given = {key: value for key, value in arguments.items() if value is not None}
    return json.dumps({"name": name, "arguments": given})


ANSWERS = [
    # answer, right, right tool, explanation
    (call(), 1, 1, ""),
    (f"<tool_call>\n{call()}\n</tool_call>", 1, 1, ""),
    (f"I will call it now. [TOOL_CALLS][{call()}]", 1, 1, ""),
    (call().replace('"arguments"', '"parameters"'), 1, 1, ""),
    (json.dumps({"name": "seal_vault", "arguments": json.dumps(WANTED["arguments"])}), 1, 1, ""),
    (f"<function=seal_vault>{json.dumps(WANTED['arguments'])}</function>", 1, 1, ""),
    ("The vault should be sealed.", 0, 0, "call: no call"),
    ("", 0, 0, "call: no call"),
    ('<tool_call>{"name": "seal_vault", "arguments": {"target": </tool_call>', 0, 0, "json: not valid JSON"),
    ('{"name": "seal_vault", "arguments": "elm-tree"}', 0, 0, "json: not valid JSON"),
    (call("mount_cache"), 0, 0, "tool: stale tool"),
    (call("seal_vaults"), 0, 0, "tool: near miss"),
    (call("patch_route"), 0, 0, "tool: another tool"),
    (call(owner=None), 0, 1, "arguments: without owner"),
    (call(owner="oak-tree"), 0, 1, "values: stale value"),
    (call(count=4999), 0, 1, "values: stale value"),
    (call(target="ash-tree", owner="elm-tree"), 0, 1, "values: swapped values"),
    (call(count="4111"), 0, 1, "values: a text for a number"),
    (call(count=4112), 0, 1, "values: another value"),
    (call(label="x"), 0, 1, "values: also has label"),
    (f"{call('patch_route')}\n{call()}", 0, 0, "tool: another tool"),
]
"""Worked by hand from the rule in docs/tool-calls.md."""


@pytest.mark.parametrize(("answer", "right", "tool", "why"), ANSWERS)
def test_a_call_is_graded_in_order(answer: str, right: int, tool: int, why: str) -> None:
    question = Question("?", targets=(json.dumps(WANTED),), mistakes=MISTAKES)
    score = TOOL_CALLS.score(question, Completion(answer))
    assert (score.value, score.explanation) == (right, why)
    assert TOOL_CALLS_TOOL.score(question, Completion(answer)).value == tool


def document_of(fitter: Fitter, length: int, sample: int, depth: float = 0.5, **options: Any) -> Document:
    task = registry.task(TaskSpec(name="tool_calls", options=options))
    return task.document([Cell("tool_calls", length, depth, sample)], seed=5, fitter=fitter)


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_another_solver_makes_the_same_calls_from_the_prompt(count: int) -> None:
    fitter = Fitter(WhitespaceTokenizer(), completion_frame())
    stale = 0
    for sample in range(count):
        changes = sample % 6
        document = document_of(fitter, 900, sample, (sample % 5) / 4, changes=changes, haystack="noise")
        [probe] = document.probes
        assert solve_call(document.prompt_text(probe)) == json.loads(probe.question.targets[0])
        stale += "stale tool" in probe.question.mistakes
        assert len(probe.question.facts) == 5
    assert stale >= count // 4


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("tokens", TOKENIZERS)
def test_prompts_with_tools_are_exact_in_ten_templates(tokens: str) -> None:
    tokenizer = opened(tokens)
    for number, (name, source) in enumerate(list(SOURCES.items())[:10]):
        template = ChatTemplate(TOOLS_IN[number % 3] + source, bos="<s>", eos="</s>", where=name)
        fitter = Fitter(tokenizer, template.frame())
        fitter.declare_tools = template.tool_frame
        document = document_of(fitter, 12_000 if tokens == "bytes" else 5000, number, tools=2)
        assert is_exact(document, tokenizer), name
        assert len(document.tools) == 4
        assert document.text.startswith(document.frame.before)
        assert "seal" in document.frame.before or "_" in document.frame.before


def test_a_template_without_tools_is_an_error_that_says_what_to_do() -> None:
    template = ChatTemplate(SOURCES["llama3"], where="the template of x")
    with pytest.raises(TokenizerError) as caught:
        template.tool_frame([{"type": "function", "function": {"name": "x"}}])
    assert caught.value.what == "the chat template declares no tools"
    assert caught.value.where == "the template of x"
    assert "--set declare=text" in caught.value.fix


def test_tools_can_be_declared_in_the_text() -> None:
    template = ChatTemplate(SOURCES["llama3"])
    document = document_of(Fitter(ByteTokenizer(), template.frame()), 9000, 1, declare="text", tools=2)
    assert not document.tools
    assert "You can call these tools:" in document.text
    assert document.probes[0].notes == ()


def test_a_length_that_is_too_short_is_named_where_the_template_declares_no_tools() -> None:
    template = ChatTemplate(SOURCES["llama3"], where="the template of x")
    fitter = Fitter(ByteTokenizer(), template.frame())
    fitter.declare_tools = template.tool_frame
    task = registry.task(TaskSpec(name="tool_calls", options={"declare": "text", "tools": 2}))
    draft = task.write([Cell("tool_calls", 600, 0.5, 1)], seed=1)
    document = fitter.unbuilt(draft, LengthError("600 tokens cannot hold this"))
    failure = document.probes[0].not_asked
    assert failure is not None
    assert failure.why == "context_length"
    assert "600 tokens cannot hold this" in failure.message


def test_tools_are_in_the_text_and_the_record_says_so_where_the_template_declares_none() -> None:
    tokenizer, template = ByteTokenizer(), ChatTemplate(SOURCES["llama3"], where="the template of x")
    chat, completion = Fitter(tokenizer, template.frame()), Fitter(tokenizer, completion_frame())
    chat.declare_tools = template.tool_frame
    for fitter, why in ((chat, "the chat template declares no"), (completion, "a completion has no chat template")):
        document = document_of(fitter, 9000, 1, tools=2)
        assert (document.tools, document.text.count("You can call these tools:")) == ((), 1)
        assert is_exact(document, tokenizer)
        [note] = document.probes[0].notes
        assert note == fitter.tools_note
        assert note.startswith(f"tools are declared in the text: {why}")
        with pytest.raises(TokenizerError, match=why):
            document_of(fitter, 9000, 1, declare="template", tools=2)


# --- servers ---


def run_with_server(
    tmp_path: Path, answer: dict[str, Any], tools: str = TOOLS_IN[0], *others: dict[str, Any], **options: Any
) -> tuple[Run, list[dict[str, Any]]]:
    """A run of `tool_calls` and other tasks on a server whose template writes tools like this."""
    tmp_path.mkdir(exist_ok=True)
    seen: list[dict[str, Any]] = []
    source = tools + SOURCES["llama3"]
    (tmp_path / "template.jinja").write_text(source)

    def serve(request: HttpRequest) -> HttpReply:
        if request.path == "/v1/models":
            return HttpReply(200, json.dumps({"data": [{"id": "fake", "max_model_len": 20_000}]}).encode())
        if not request.path.endswith("/chat/completions"):
            return HttpReply(404, b"{}")
        body = json.loads(request.body or b"")
        template = ChatTemplate(source, tools=tuple(body.get("tools", ())))
        count = len(template.render(body["messages"]).encode())
        message = answer if "tools" in body else {"role": "assistant", "content": "yes"}
        seen.append(body)
        page_ = {"choices": [{"message": message, "finish_reason": "tool_calls" if "tools" in body else "stop"}],
                 "usage": {"prompt_tokens": count, "completion_tokens": 1}}  # fmt: skip
        return HttpReply(200, json.dumps(page_).encode())

    with served_by(serve) as base_url:
        model = f"openai:fake?base_url={base_url}&tokenizer=bytes&template={tmp_path}/template.jinja"
        tasks = [{"name": "tool_calls", "tools": 2, "haystack": "noise", **options}, *others]
        spec = make_spec({"model": model, "tasks": tasks, "lengths": [9000], "depths": 1, "samples": 2})
        folder = measure(spec, tmp_path / "run").folder
    return load_run(folder), [body for body in seen if "tools" in body]


def test_a_chat_server_gets_the_tools_and_its_calls_are_the_answer(tmp_path: Path) -> None:
    function = {"name": "seal_vault", "arguments": '{"target": "x"}'}
    run, bodies = run_with_server(tmp_path, {"content": None, "tool_calls": [{"function": function}]})
    assert [len(body["tools"]) for body in bodies] == [4, 4]
    for record in run.records:
        assert isinstance(record.outcome, Completion)
        assert record.outcome.text == '<tool_call>{"name": "seal_vault", "arguments": {"target": "x"}}</tool_call>'
        assert record.receipt.ok  # the tokens of the tools are counted as the server counts them
        assert record.scores["tool_calls"].explanation.partition(":")[0] in ("tool", "arguments")
        assert record.sent.decoding["tools"] == 4


def test_broken_arguments_of_a_server_are_kept_as_they_came(tmp_path: Path) -> None:
    function = {"name": "seal_vault", "arguments": '{"target": '}
    run, _ = run_with_server(tmp_path, {"content": "", "tool_calls": [{"function": function}]})
    assert {r.scores["tool_calls"].explanation for r in run.records} == {"json: not valid JSON"}


def test_a_suite_is_measured_whole_where_the_template_declares_no_tools(tmp_path: Path) -> None:
    run, bodies = run_with_server(tmp_path, {"content": "yes"}, "", {"name": "compaction"})
    assert (run.totals.asked, run.totals.failed, bodies) == (4, 0, [])
    note = "tools are declared in the text: the chat template declares no tools"
    for record in run.records:
        assert (note in record.sent.notes) is (record.cell.task == "tool_calls")
        assert record.receipt.ok
    assert run.manifest.model["notes"].count(note) == 1
    with pytest.raises(TokenizerError, match="the chat template declares no tools"):
        run_with_server(tmp_path / "x", {"content": "yes"}, "", {"name": "compaction"}, declare="template")


# --- planted losers ---

LOSER = """
import hashlib, json, sys
sys.path.insert(0, {tests!r})
from support.agent_readers import solve_call

def lost(prompt, share):
    return int(hashlib.sha256(prompt.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF < share

def swaps(prompt):
    call = solve_call(prompt)
    given = call["arguments"]
    if lost(prompt, 0.3):
        given["target"], given["owner"] = given["owner"], given["target"]
    return json.dumps(call)

def stale(prompt):
    import re
    call = solve_call(prompt)
    step = re.findall(r"Now do step (\\S+)\\. Make", prompt)[0]
    first = re.findall("[Ss]tep " + re.escape(step) + r" (?:now )?needs the tool (\\w+)\\.", prompt)[0]
    if lost(prompt, 0.4):
        call["name"] = first
    return json.dumps(call)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "share", "step", "shown"),
    [("swaps", 0.3, "values", "swapped values"), ("stale", 0.4, "tool", "stale tool")],
)
def test_a_planted_loser_is_recovered_with_its_class(
    tmp_path: Path, name: str, share: float, step: str, shown: str
) -> None:
    (tmp_path / "mine.py").write_text(LOSER.format(tests=str(Path(__file__).parents[2])))
    tasks = [{"name": "tool_calls", "haystack": "noise", "changes": 5}]
    spec = make_spec(
        {"model": f"{tmp_path}/mine.py:{name}", "tasks": tasks, "lengths": [1200], "depths": 4, "samples": 20}
    )
    run = load_run(measure(spec, tmp_path / "run").folder)
    [steps] = call_steps(list(run.records))
    assert {key: sum(counts.values()) for key, counts in steps.broken.items()}.keys() == {(step, shown)}
    lost = [1 - record.scores["tool_calls"].value for record in run.records]
    assert mean_interval(lost, [record.cluster for record in run.records]).interval.holds(share)
    section = tool_calls_section([run], ["x"])
    assert section is not None
    [figure] = section.figures
    assert "right values, 1200: " in figure.draw(False).alternative
    assert "Tool calls, step by step" in page([run])
    assert tool_calls_section([run, run], ["a", "b"]) is not None
