"""What is an answer and what is a failure: every kind of reply that servers give, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leadline.core.answers import Completion, Failure
from leadline.models.openai.http import HttpReply, parse_retry_after
from leadline.models.openai.replies import parse_reply
from leadline.text.chat import opens_thinking, split_thinking


def reply(status: int, body: Any, **fields: Any) -> HttpReply:
    return HttpReply(status, body if isinstance(body, bytes) else json.dumps(body).encode(), **fields)


def chat(message: dict[str, Any], finish: Any = "stop", **fields: Any) -> HttpReply:
    return reply(200, {"choices": [{"message": message, "finish_reason": finish}], **fields})


def outcome(answer: HttpReply, *, is_chat: bool = True, prefix: str = "", opened: bool = False) -> Completion | Failure:
    return parse_reply(answer, chat=is_chat, prefix=prefix, opened_thinking=opened, key_name="KEY")


CONTEXT_REFUSALS = {
    "openai": {"error": {"message": "Too much.", "type": "invalid_request_error", "code": "context_length_exceeded"}},
    "vllm, chat": {"object": "error", "type": "BadRequestError", "code": 400, "message": "This model's maximum context "
                   "length is 16384 tokens. However, you requested 122946 tokens (112946 in the messages, 10000 in the "
                   "completion). Please reduce the length of the messages or completion."},
    "vllm, prompt": {"error": {"message": "The decoder prompt (length 9000) is longer than the maximum model length of "
                               "8192.", "type": "BadRequestError", "code": 400}},
    "vllm, max_tokens": {"error": {"message": "'max_tokens' is too large: 100. This model's maximum context length is "
                                   "8192 tokens and your request has 8150 input tokens.", "code": 400}},
    "vllm 0.32": {"error": {"message": "This model's maximum context length is 2048 tokens. However, your prompt "
                            "contains at least 2049 input tokens. (parameter=input_tokens, value=2049)",
                            "type": "BadRequestError", "code": 400}},
    "sglang, input": {"object": "error", "message": "The input (9000 tokens) is longer than the model's context length "
                      "(8192 tokens).", "code": 400},
    "sglang, total": {"object": "error", "message": "Requested token count exceeds the model's maximum context length "
                      "of 8192 tokens. You requested a total of 9000 tokens.", "code": 400},
    "sglang, limit": {"error": {"message": "Input length (9000 tokens) exceeds the maximum allowed length (8186 "
                                "tokens). Use a shorter input.", "code": 400}},
    "llama.cpp": {"error": {"code": 400, "message": "request (4001 tokens) exceeds the available context size (2048 "
                            "tokens), try increasing it", "type": "exceed_context_size_error"}},
    "tgi": {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000",
            "error_type": "validation"},
    "mistral": {"object": "error", "message": "Prompt contains 40000 tokens, too large for model with 32768 maximum "
                "context length"},
    "together": {"error": {"message": "Input is too long. `inputs` must be shorter than the maximum input length."}},
    "anthropic": {"error": {"message": "input length and `max_tokens` exceed context limit: 190402 + 16000 > 204648"}},
    "gemini": [{"error": {"code": 400, "message": "The input token count (1200293) exceeds the maximum number of "
                          "tokens allowed (1048576).", "status": "INVALID_ARGUMENT"}}],
    "moonshot": {"error": {"message": "Invalid request: Your request exceeded model token limit: 262144 (requested: "
                           "269030)", "type": "invalid_request_error"}},
    "dashscope": {"error": {"message": "<400> InternalError.Algo.InvalidParameter: Range of input length should be "
                            "[1, 204800]", "code": "invalid_parameter_error"}},
    "lm studio": {"error": "The number of tokens to keep from the initial prompt is greater than the context length "
                  "(n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length."},
    "lm studio 0.4": {"error": "Cannot truncate prompt with n_keep (15028) >= n_ctx (7424)"},
    "lm studio 0.3": {"error": "Trying to keep the first 15857 tokens when context the overflows. However, the model "
                      "is loaded with context length of only 8192 tokens, which is not enough."},
}  # fmt: skip


@pytest.mark.parametrize("words", CONTEXT_REFUSALS.values(), ids=CONTEXT_REFUSALS.keys())
def test_a_refusal_of_the_length_has_its_own_kind_and_is_not_asked_again(words: Any) -> None:
    found = outcome(reply(400, words))
    assert isinstance(found, Failure)
    assert (found.why, found.transient) == ("context_length", False)


def test_a_refusal_of_the_length_is_known_by_its_type_under_any_status() -> None:
    words = CONTEXT_REFUSALS["llama.cpp"]
    for status in (200, 400, 500):
        found = outcome(reply(status, words))
        assert isinstance(found, Failure)
        assert found.why == "context_length", status


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported value: 'temperature' does not support 0 with this model.",
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "The model `gpt-9` does not exist",
        "Invalid 'messages[0].content': too few parts",
    ],
)
def test_other_refusals_are_not_taken_for_a_refusal_of_the_length(message: str) -> None:
    found = outcome(reply(400, {"error": {"message": message, "type": "invalid_request_error"}}))
    assert found == Failure("refused_request", message, status=400)


@pytest.mark.parametrize(
    ("status", "why", "transient"),
    [
        (400, "refused_request", False), (401, "refused_request", False), (404, "refused_request", False),
        (422, "refused_request", False), (302, "refused_request", False), (408, "timeout", True),
        (429, "rate_limited", True), (500, "server", True), (502, "server", True), (503, "server", True),
        (504, "server", True),
    ],
)  # fmt: skip
def test_a_status_says_whether_asking_again_may_help(status: int, why: str, transient: bool) -> None:
    found = outcome(reply(status, {"error": {"message": "no"}}))
    assert isinstance(found, Failure)
    assert (found.why, found.transient, found.status) == (why, transient, status)


def test_a_used_up_quota_is_not_waited_for() -> None:
    found = outcome(reply(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}))
    assert isinstance(found, Failure)
    assert not found.transient


def test_a_refused_key_names_the_variable_it_was_read_from() -> None:
    found = outcome(reply(401, {"error": {"message": "Incorrect API key"}}))
    assert isinstance(found, Failure)
    assert "$KEY" in found.message


def test_retry_after_is_kept_with_the_failure() -> None:
    found = outcome(reply(429, {"error": {"message": "slow down"}}, retry_after=8.0))
    assert isinstance(found, Failure)
    assert found.retry_after == 8.0


def test_retry_after_is_read_as_seconds_and_as_a_date() -> None:
    assert parse_retry_after("8") == 8.0
    assert parse_retry_after("0.5") == 0.5
    assert parse_retry_after("Wed, 21 Oct 2026 07:28:08 GMT", now=1792567680.0) == 8.0
    assert parse_retry_after("Wed, 21 Oct 2026 07:28:08 GMT", now=1792567999.0) == 0.0
    assert parse_retry_after("soon") is None
    assert parse_retry_after(None) is None


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{'choices': [oops", b'{"choices": [{"mess', b"<html><body>hello</body></html>", b"[]", b'"text"',
        b"null", b"\xff\xfe",
    ],
)  # fmt: skip
def test_what_is_not_a_json_object_is_malformed_and_may_pass(body: bytes) -> None:
    found = outcome(reply(200, body))
    assert isinstance(found, Failure)
    assert (found.why, found.transient) == ("malformed", True)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"choices": []}, {"choices": None}, {"choices": [{}]}, {"choices": [{"message": None}]},
        {"choices": [{"message": {"role": "assistant"}}]}, {"choices": [{"message": {"content": None}}]},
        {"choices": [{"message": {"content": 7}}]}, {"choices": [{"message": {"content": []}}]},
        {"choices": ["text"]},
    ],
)  # fmt: skip
def test_a_null_or_missing_answer_is_a_failure_that_may_pass(body: dict[str, Any]) -> None:
    found = outcome(reply(200, body))
    assert isinstance(found, Failure)
    assert (found.why, found.transient) == ("empty_body", True)


def test_null_text_of_a_plain_completion_is_a_failure_too() -> None:
    found = outcome(reply(200, {"choices": [{"text": None, "finish_reason": "stop"}]}), is_chat=False)
    assert isinstance(found, Failure)
    assert found.why == "empty_body"


def test_an_empty_string_is_an_answer() -> None:
    assert outcome(chat({"content": ""})) == Completion("", "stop")
    assert outcome(reply(200, {"choices": [{"text": "", "finish_reason": "stop"}]}), is_chat=False) == Completion(
        "", "stop"
    )


@pytest.mark.parametrize(
    "error",
    [
        {"message": "upstream is tired"}, {"message": "overloaded", "code": 502}, "something broke",
        {"metadata": {"raw": "x"}},
    ],
)  # fmt: skip
def test_an_error_object_under_status_200_is_a_failure_that_may_pass(error: Any) -> None:
    found = outcome(reply(200, {"error": error}))
    assert isinstance(found, Failure)
    assert (found.why, found.transient, found.status) == ("server", True, 200)


def test_an_error_object_that_says_429_is_a_rate_limit() -> None:
    found = outcome(reply(200, {"error": {"message": "slow down", "code": 429}}))
    assert isinstance(found, Failure)
    assert (found.why, found.transient) == ("rate_limited", True)


@pytest.mark.parametrize("finish", ["abort", "error", {"type": "abort", "message": "out of memory"}])
def test_an_answer_that_the_server_broke_off_is_a_failure(finish: Any) -> None:
    found = outcome(chat({"content": "The number is 47"}, finish))
    assert isinstance(found, Failure)
    assert (found.why, found.transient) == ("aborted", True)


def test_an_error_inside_a_choice_is_a_failure() -> None:
    broken = {"choices": [{"message": {"content": ""}, "finish_reason": None, "error": {"message": "provider down"}}]}
    found = outcome(reply(200, broken))
    assert isinstance(found, Failure)
    assert found.message == "provider down"


def test_the_receipt_and_the_finish_reason_are_kept() -> None:
    usage = {"prompt_tokens": 36, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 33}}
    found = outcome(chat({"content": "42"}, "length", usage=usage))
    assert found == Completion("42", "length", prompt_tokens=36, completion_tokens=4, cached_tokens=33)


@pytest.mark.parametrize(
    "usage",
    [None, {}, {"prompt_tokens": None}, {"prompt_tokens": "36"}, "none", {"prompt_tokens": 0, "completion_tokens": 0}],
)
def test_a_receipt_that_is_not_given_is_none(usage: Any) -> None:
    found = outcome(chat({"content": "42"}, usage=usage))
    assert isinstance(found, Completion)
    assert found.prompt_tokens is None


def test_a_receipt_of_nothing_but_cached_tokens_is_kept() -> None:
    usage = {"prompt_tokens": 0, "prompt_tokens_details": {"cached_tokens": 36}}
    found = outcome(chat({"content": "42"}, usage=usage))
    assert isinstance(found, Completion)
    assert (found.prompt_tokens, found.cached_tokens) == (0, 36)


def test_thinking_in_a_field_of_its_own_is_kept_apart() -> None:
    for name in ("reasoning_content", "reasoning"):
        assert outcome(chat({"content": "42", name: "six by seven"})) == Completion("42", "stop", "six by seven")


def test_an_answer_cut_off_while_thinking_is_a_cut_off_answer() -> None:
    found = outcome(chat({"content": None, "reasoning_content": "let me see"}, "length"))
    assert found == Completion("", "length", "let me see")


def test_thinking_without_any_answer_is_a_failure_that_will_not_pass() -> None:
    found = outcome(chat({"content": None, "reasoning_content": "the number is 42"}, "stop"))
    assert isinstance(found, Failure)
    assert (found.why, found.transient) == ("empty_body", False)


def test_a_refusal_by_the_model_is_its_answer() -> None:
    found = outcome(chat({"content": None, "refusal": "I cannot help with that."}))
    assert found == Completion("I cannot help with that.", "stop")


CALL = {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}}]}
NOT_THE_MODELS: dict[str, tuple[HttpReply, str]] = {
    **{f"filtered, {text!r}": (chat({"content": text}, "content_filter"), "filtered") for text in (None, "", "The")},
    **{f"gemini, {name}": (chat({"content": ""}, name), "filtered") for name in ("SAFETY", "RECITATION", "safety")},
    **{f"tool call, {content!r}": (chat({"content": content, **CALL}), "tool_call") for content in (None, "", " \n")},
    "tool finish": (chat({"content": ""}, "tool_calls"), "tool_call"),
    "function call": (chat({"content": "", "function_call": {"name": "f", "arguments": "{}"}}), "tool_call"),
    **{
        f"finish {name}": (chat({"content": "half of an ans"}, name), "aborted")
        for name in (
            "error", "ERROR", "abort", "cancelled", "canceled", "CANCELLED", "failed", "timeout", "user_cancel",
            "network_error", "ERROR_LIMIT", "serverError", "preempted", "insufficient_system_resource", "killed",
        )
    },
    **{
        f"finish {name}": (chat({"content": "half of an ans"}, name), "filtered")
        for name in (
            "guardrail_intervened", "ERROR_TOXIC", "moderation", "contentFiltered", "IMAGE_SAFETY", "policy_violation",
        )
    },
    **{f"status {name}": (chat({"content": ""}, status=name), "aborted") for name in ("failed", "cancelled", "queued")},
    "status of the choice": (
        reply(200, {"choices": [{"message": {"content": "x"}, "finish_reason": None, "status": "failed"}]}), "aborted",
    ),
    **{f"status {n}": (reply(n, {"choices": []}), "unexpected_status") for n in range(201, 208)},
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_THE_MODELS)
def test_what_is_not_the_models_answer_is_a_failure_of_its_own_kind_and_asked_again(name: str) -> None:
    found = outcome(NOT_THE_MODELS[name][0])
    assert isinstance(found, Failure)
    assert (found.why, found.transient) == (NOT_THE_MODELS[name][1], True)


@pytest.mark.parametrize(
    "name", ["length", "max_tokens", "MAX_TOKENS", "model_length", "max_output_tokens", "maxTokens"]
)
def test_an_answer_that_used_up_its_allowance_is_cut_off_under_every_name_for_it(name: str) -> None:
    assert outcome(chat({"content": "The number is"}, name)) == Completion("The number is", "length")


@pytest.mark.parametrize("name", ["stop", "eos", "EOS_TOKEN", "end_turn", "stop_sequence", "COMPLETE", "complete", ""])
def test_an_end_by_the_model_is_an_answer_under_every_name_for_it(name: str) -> None:
    assert outcome(chat({"content": "42"}, name)) == Completion("42", name)


def test_a_text_beside_a_tool_call_and_an_empty_answer_are_answers() -> None:
    assert outcome(chat({"content": "42", **CALL})) == Completion("42", "stop")
    assert outcome(chat({"content": ""})) == Completion("", "stop")
    assert outcome(chat({"content": "42"}, status="completed")) == Completion("42", "stop")


def test_content_in_parts_is_joined_and_thinking_parts_are_not_answers() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    found = outcome(chat({"content": [thought, {"type": "text", "text": "4"}, {"type": "text", "text": "2"}]}))
    assert found == Completion("42", "stop", "hm")


def test_an_echoed_answer_prefix_is_not_part_of_the_answer() -> None:
    echoed = chat({"content": "The number is 42."})
    assert outcome(echoed, prefix="The number is") == Completion(" 42.", "stop")
    assert outcome(echoed, prefix="The number is ") == Completion("42.", "stop")
    assert outcome(chat({"content": " 42."}), prefix="The number is") == Completion(" 42.", "stop")


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("42", False, ("", "42")),
        ("  42\n", False, ("", "  42\n")),
        ("<think>six by seven</think>\n\n42", False, ("six by seven", "42")),
        ("\n<think>\n</think>42", False, ("", "42")),
        ("<think>still going", False, ("still going", "")),
        ("six by seven</think>42", True, ("six by seven", "42")),
        ("six by seven", True, ("six by seven", "")),
        ("[THINK]hm[/THINK]42", False, ("hm", "42")),
        ("use the <think> tag", False, ("", "use the <think> tag")),
        ("a </think> b", False, ("", "a </think> b")),
        ("six by seven</think>42", None, ("six by seven", "42")),
        ("42", None, ("", "42")),
    ],
)
def test_thinking_is_split_from_the_answer(text: str, opened: bool | None, expected: tuple[str, str]) -> None:
    assert split_thinking(text, opened=opened) == expected


def test_a_prompt_that_ends_inside_thinking_is_noticed() -> None:
    assert opens_thinking("<|im_start|>assistant\n<think>\n")
    assert not opens_thinking("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not opens_thinking("<|im_start|>assistant\n")
