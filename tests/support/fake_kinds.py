"""Kinds of server that the fake server imitates: their information pages, templates and length errors."""

from __future__ import annotations

import json
from typing import Any, Literal

from support.fake_http import Response

Kind = Literal["plain", "vllm", "sglang", "llamacpp"]
MODEL = "fake"
BOS = "<s>"
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REFUSALS: dict[Kind, dict[str, Any]] = {
    "plain": {"error": {
        "message": "This model's maximum context length is {window} tokens. However, your messages resulted in "
        "{tokens} tokens. Please reduce the length of the messages.",
        "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}},
    "vllm": {"error": {
        "message": "This model's maximum context length is {window} tokens. However, you requested {tokens} tokens. "
        "Please reduce the length of the input prompt or the number of requested output tokens.",
        "type": "BadRequestError", "param": "input_tokens", "code": 400}},
    "sglang": {"object": "error", "message": "The input ({tokens} tokens) is longer than the model's context length "
               "({window} tokens).", "type": "BadRequestError", "param": None, "code": 400},
    "llamacpp": {"error": {
        "code": 400, "message": "request ({tokens} tokens) exceeds the available context size ({window} tokens), try "
        "increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 0, "n_ctx": 0}},
}  # fmt: skip


def rendered(kind: Kind, body: dict[str, Any]) -> str:
    """The prompt a server builds from a request; a final assistant message is continued if this kind does that."""
    if "messages" not in body:
        return BOS + str(body["prompt"])
    messages = body["messages"]
    last = messages[-1]
    asked = bool(body.get("continue_final_message"))
    if kind == "vllm":
        asked = asked and not body.get("add_generation_prompt", True)
    continued = last["role"] == "assistant" and (kind == "llamacpp" or (kind != "plain" and asked))
    closed = messages[:-1] if continued else messages
    turns = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in closed)
    return BOS + turns + "<|im_start|>assistant\n" + (last["content"] if continued else "")


def refusal(kind: Kind, tokens: int, window: int | None) -> Response:
    text = json.dumps(REFUSALS[kind]).replace("{tokens}", str(tokens)).replace("{window}", str(window))
    return Response(400, text.encode())


def pages(kind: Kind, window: int | None) -> dict[str, Any]:
    """GET path -> response."""
    entry: dict[str, Any] = {"id": MODEL, "object": "model", "owned_by": kind.replace("plain", "somebody")}
    if kind in ("vllm", "sglang"):
        entry |= {"max_model_len": window, "root": "/nowhere/fake"}
    found: dict[str, Any] = {"/v1/models": {"object": "list", "data": [entry]}}
    if kind == "vllm":
        found["/version"] = {"version": "0.0-fake"}
    if kind == "sglang":
        found["/get_model_info"] = {"model_path": "/nowhere/fake", "tokenizer_path": "/nowhere/fake"}
        found["/get_server_info"] = {"context_length": window, "version": "0.0-fake"}
    if kind == "llamacpp":
        found["/props"] = {
            "default_generation_settings": {"n_ctx": window, "params": {}},
            "chat_template": TEMPLATE,
            "bos_token": BOS,
            "eos_token": "</s>",
            "model_path": "/nowhere/fake.gguf",
            "build_info": "b0-fake",
        }
    return found


def text_to_tokenize(kind: Kind, body: dict[str, Any]) -> str:
    """The text that a request to /tokenize asks about, special tokens included where it asks for them."""
    if kind == "llamacpp":
        return (BOS if body.get("add_special") else "") + str(body["content"])
    if "messages" in body:
        return rendered(kind, body)
    return (BOS if body.get("add_special_tokens", True) else "") + str(body["prompt"])


def text_of_tokens(kind: Kind, body: dict[str, Any]) -> dict[str, str]:
    """What /detokenize answers, under the key that this kind uses. Tokens are bytes."""
    text = bytes(body["tokens"]).decode(errors="replace")
    return {{"vllm": "prompt", "llamacpp": "content"}.get(kind, "text"): text}
