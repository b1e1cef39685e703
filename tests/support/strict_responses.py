"""What the Responses API refuses in a request without any state, as far as it is publicly known."""

import json
from typing import Any

from tests.support.strict_apis import Body, Issued, check_name, refuse

_MESSAGE = {"role", "content", "phase"}
_CALL = {"type", "call_id", "name", "arguments"}
_OUTPUT = {"type", "call_id", "output"}
_KNOWN = {"model", "store", "include", "reasoning", "instructions", "input", "stream"}
_KNOWN |= {"tools", "tool_choice", "max_output_tokens", "temperature", "text"}


def check_responses(body: Body, issued: Issued | None = None) -> None:
    """The Responses API with `store: false`: nothing may be named that only the server could know."""
    issued = issued or Issued()
    _check_options(body)
    items = body["input"]
    refuse(items, "input is empty")
    ids: list[str] = []
    waiting: list[str] = []
    for n, item in enumerate(items):
        where, kind = f"input[{n}]", item.get("type", "message")
        if kind == "function_call_output":
            refuse(set(item) == _OUTPUT, f"{where}: fields {sorted(item)}")
            refuse(item["output"], f"{where}: no output")
            refuse(waiting and item["call_id"] == waiting.pop(0), f"{where}: output for {item['call_id']}")
            continue
        if kind == "function_call":
            # Reasoning may come between the calls of one answer, and nothing else may.
            _check_call(item, where)
            ids.append(item["call_id"])
            waiting.append(item["call_id"])
            continue
        if kind == "reasoning":
            _check_reasoning(item, issued, where)
            after = items[n + 1] if n + 1 < len(items) else {}
            led = after.get("type") in ("reasoning", "function_call") or after.get("role") == "assistant"
            refuse(led, f"{where}: reasoning was provided without its required following item")
            continue
        # What one answer said stays together, in its order, before the outputs of its calls.
        before = items[n - 1] if n else {"role": "user"}
        outside = before.get("role") == "user" or before.get("type") == "function_call_output"
        own = item["role"] == "assistant" and not outside
        refuse(not waiting or own, f"{where}: no tool output found for function calls {waiting}")
        _check_message(item, where)
    refuse(not waiting, f"no tool output found for function calls {waiting}")
    refuse(len(set(ids)) == len(ids), "a call_id comes twice")
    last = items[-1]
    refuse(last.get("role") == "user" or last.get("type") == "function_call_output", "the last item")


def _check_call(item: Body, where: str) -> None:
    refuse(set(item) == _CALL, f"{where}: fields {sorted(item)}")
    refuse(0 < len(item["call_id"]) <= 64, f"{where}.call_id: string too long")
    check_name(item["name"], 64, where)
    refuse(isinstance(json.loads(item["arguments"]), dict), f"{where}: arguments are no object")


def _check_reasoning(item: Body, issued: Issued, where: str) -> None:
    refuse("status" not in item, f"Unknown parameter: '{where}.status'")
    refuse("summary" in item, f"Missing required parameter: '{where}.summary'")
    refuse(item.get("encrypted_content"), f"Item with id {item.get('id')} not found")
    refuse(item in issued.parts, f"{where}: the encrypted content could not be verified")


def _check_message(item: Body, where: str) -> None:
    refuse(set(item) <= _MESSAGE, f"{where}: fields {sorted(item)}")
    role, content = item["role"], item["content"]
    refuse(role in ("user", "assistant"), f"{where}: role {role}")
    refuse(content, f"{where}: no content")
    refuse(role == "user" or isinstance(content, str), f"{where}: parts of the assistant")
    phases = ("commentary", "final_answer") if role == "assistant" else ()
    refuse("phase" not in item or item["phase"] in phases, f"{where}: phase {item.get('phase')}")
    fields = {
        "input_text": [{"text"}],
        "input_image": [{"image_url", "detail"}],
        "input_file": [{"filename", "file_data"}, {"file_url"}],
    }
    for part in () if isinstance(content, str) else content:
        taken = fields.get(part["type"], [])
        refuse(set(part) - {"type"} in taken, f"{where}: a part holds {sorted(part)}")


def _check_options(body: Body) -> None:
    refuse(set(body) <= _KNOWN, f"Unknown parameter: {set(body) - _KNOWN}")
    refuse(body["store"] is False, "something would be stored")
    refuse(body.get("instructions", "x"), "instructions are empty")
    refuse(body.get("max_output_tokens", 16) >= 16, "max_output_tokens: integer below minimum value")
    names = {tool["name"] for tool in body.get("tools", ())}
    for tool in body.get("tools", ()):
        _check_tool(tool)
    choice: Any = body.get("tool_choice")
    if choice is not None:
        refuse(names, "tool_choice is only allowed when tools are specified")
        named = isinstance(choice, dict) and choice["type"] == "function" and choice["name"] in names
        refuse(named or choice in ("auto", "none", "required"), f"tool_choice {choice}")


def _check_tool(tool: Body) -> None:
    refuse(set(tool) == {"type", "name", "description", "parameters", "strict"}, f"fields {sorted(tool)}")
    check_name(tool["name"], 64, "tools")
    refuse(tool["strict"] is False, "in strict mode every property would be required")
    schema = tool["parameters"]
    refuse(schema.get("type") == "object", "schema must have type 'object'")
    refuse(not {"oneOf", "anyOf", "allOf", "enum", "not"} & set(schema), "a choice at the top of a schema")
