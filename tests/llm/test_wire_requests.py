"""What strict servers of the OpenAI-compatible dialect refuse in a request. Wire cases E.

Each rule is a field of the profile; the request is what goes over the socket.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from playhead import AssistantMessage, ChatMessage, LLMRequest, ToolCall, ToolMessage, UserMessage
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import DEFAULT, Profile
from playhead.testing import FakeProvider, openai_calls, openai_sse, openai_text, reply_json
from playhead.types import TextPart, ToolSchema

pytestmark = pytest.mark.anyio

Log = list[ChatMessage]


def schema(name: str) -> ToolSchema:
    return ToolSchema(name, "A tool.", [], {"type": "object", "properties": {}})


def profile(**fields: Any) -> Profile:
    return Profile(name="test", **fields)


async def sent(messages: Sequence[ChatMessage], rules: Profile = DEFAULT, **fields: Any) -> dict[str, Any]:
    """The body of the request."""
    async with FakeProvider(openai_text("ok")) as server:
        llm = OpenAICompatible("m", "k", f"{server.url}/v1", profile=rules)
        await llm.generate(LLMRequest(messages, **fields))
    body: dict[str, Any] = server.requests[0].json
    return body


async def sent_messages(messages: Sequence[ChatMessage], rules: Profile = DEFAULT) -> list[dict[str, Any]]:
    body = await sent(messages, rules)
    wire: list[dict[str, Any]] = body["messages"]
    return wire


def turn(id: str = "t1", text: str = "", name: str = "f", **more: Any) -> Log:
    return [
        UserMessage("go"),
        AssistantMessage(text, [ToolCall(id, name, {"a": 1})], **more),
        ToolMessage(id, name, "done"),
    ]


@pytest.mark.parametrize(
    ("form", "expected"),
    [("text", ""), ("null", None), ("omit", "absent"), ("placeholder", "(calling tools)")],
)
async def test_q083_the_content_of_a_message_with_calls_only(form: Any, expected: Any) -> None:
    """Q083: as the profile says; the default is empty text, which nobody refuses."""
    wire = await sent_messages(turn(), profile(assistant_empty=form))
    assert wire[1].get("content", "absent") == expected


async def test_q085_a_message_without_text_and_calls_is_never_sent() -> None:
    """Q085."""
    wire = await sent_messages([UserMessage("a"), AssistantMessage(""), UserMessage("b")])
    assert [m["role"] for m in wire] == ["user", "user"]
    assert all(m["content"] is not None for m in wire)


async def test_q086_text_parts_become_one_text() -> None:
    """Q086: several servers refuse lists of text."""
    wire = await sent_messages([UserMessage([TextPart("a"), TextPart("b")])])
    assert wire[0]["content"] == "a\n\nb"


async def test_q088_results_stand_behind_their_call_in_order() -> None:
    """Q088: all of them, with nothing between."""
    calls = [ToolCall("t1", "f", {}), ToolCall("t2", "g", {})]
    log: Log = [UserMessage("go"), AssistantMessage("", calls), ToolMessage("t2", "g", "2")]
    log += [UserMessage("wait"), ToolMessage("t1", "f", "1")]
    wire = await sent_messages(log)
    assert [m.get("tool_call_id", m["role"]) for m in wire] == ["user", "assistant", "t1", "t2", "user"]


@pytest.mark.parametrize("needed", [False, True])
async def test_q089_an_assistant_message_between_a_result_and_a_user_message(needed: bool) -> None:
    """Q089: for that server only; the history itself has no such message."""
    log = [*turn(), UserMessage("next")]
    wire = await sent_messages(log, profile(needs_assistant_after_tool=needed))
    roles = [m["role"] for m in wire]
    assert roles == ["user", "assistant", "tool", *(["assistant"] if needed else []), "user"]
    assert all(m["content"] for m in wire[3:])


@pytest.mark.parametrize("id", ["run7.step2.call-1", "t1", "x" * 100, "", "é", "abcdefghi"])
@pytest.mark.parametrize(
    ("codec", "pattern"),
    [("alnum9", r"[A-Za-z0-9]{9}"), ("safe64", r"[A-Za-z0-9_-]{1,64}"), ("short40", r".{1,40}")],
)
async def test_q091_q092_ids_as_the_server_wants_them(id: str, codec: Any, pattern: str) -> None:
    """Q091, Q092: stable, and the same in the call and in its result."""
    wire = await sent_messages(turn(id), profile(id_codec=codec))
    (call,) = wire[1]["tool_calls"]
    assert re.fullmatch(pattern, call["id"])
    assert wire[2]["tool_call_id"] == call["id"]
    assert wire == await sent_messages(turn(id), profile(id_codec=codec))


async def test_q091_different_ids_stay_different() -> None:
    """Q091: the codec does not make two calls one."""
    log = [m for n in range(200) for m in turn(f"run.step.{n}")]
    wire = await sent_messages(log, profile(id_codec="alnum9"))
    ids = [m["tool_calls"][0]["id"] for m in wire if m["role"] == "assistant"]
    assert len(set(ids)) == 200


@pytest.mark.parametrize("name", ["", "a b", "github.list_issues", "x" * 200, "é"])
async def test_q094_an_illegal_name_in_the_history_is_made_legal(name: str) -> None:
    """Q094: the pair is kept."""
    wire = await sent_messages(turn(name=name))
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", wire[1]["tool_calls"][0]["function"]["name"])
    assert wire[2]["role"] == "tool"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_long_tool_name_comes_back_as_itself(streamed: bool) -> None:
    """Probe 4: a 70-character name goes out short, and its call finds the tool."""
    name = "server.with.a.very.long.namespace/" + "n" * 60
    async with FakeProvider(openai_text("ok")) as server:
        llm = OpenAICompatible("m", "k", f"{server.url}/v1")
        await llm.generate(LLMRequest([UserMessage("go")], [schema(name), schema("short")]))
        wire = server.requests[0].json["tools"][0]["function"]["name"]
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", wire)
        server.add((openai_sse if streamed else openai_calls)(calls=[(wire, {}), ("short", {})]))
        request = LLMRequest([UserMessage("go")], [schema(name), schema("short")])
        result = await llm.generate(request, (lambda _: None) if streamed else None)
    assert [c.name for c in result.message.tool_calls] == [name, "short"]


@pytest.mark.parametrize("needed", [False, True])
async def test_q095_a_history_with_calls_and_a_request_without_tools(needed: bool) -> None:
    """Q095: a tool that does nothing is declared, where the server wants one."""
    body = await sent(turn(), profile(needs_tools_with_tool_history=needed))
    assert ("tools" in body) is needed
    body = await sent([UserMessage("hi")], profile(needs_tools_with_tool_history=needed))
    assert "tools" not in body


@pytest.mark.parametrize("field", ["stream_options", "parallel_tool_calls", "store", "max_completion_tokens"])
async def test_q098_optional_fields_are_sent_only_where_the_profile_says_so(field: str) -> None:
    """Q098: the default request holds nothing that a strict server refuses."""
    async with FakeProvider(openai_sse("ok")) as server:
        llm = OpenAICompatible("m", "k", f"{server.url}/v1")
        await llm.generate(LLMRequest([UserMessage("hi")], max_tokens=5), lambda _: None)
    assert field not in server.requests[0].json


@pytest.mark.parametrize(
    ("message", "repair"),
    [
        ("Unrecognized request argument supplied: stream_options", {"usage_in_stream": False}),
        (
            "Use 'max_completion_tokens' instead of 'max_tokens'",
            {"max_tokens_field": "max_completion_tokens"},
        ),
        ("max_tokens is not supported", {"max_tokens_field": "max_completion_tokens"}),
        ("max_completion_tokens is not supported", None),
        ("tool_choice is unsupported", {"tool_choice": "none"}),
        ("something else", None),
    ],
)
async def test_q098_a_refused_field_is_named_as_a_repair(message: str, repair: Any) -> None:
    """Q098: the attempt loop may apply it once; an adapter never retries."""
    from playhead import BadRequestError

    async with FakeProvider(reply_json({"error": {"message": message}}, 400)) as server:
        llm = OpenAICompatible("m", "k", f"{server.url}/v1", profile=profile(usage_in_stream=True))
        with pytest.raises(BadRequestError) as caught:
            await llm.generate(LLMRequest([UserMessage("hi")], max_tokens=5), lambda _: None)
    assert caught.value.repair == repair
    assert len(server.requests) == 1


@pytest.mark.parametrize("merge", [False, True])
async def test_q100_user_messages_in_a_row(merge: bool) -> None:
    """Q100: merged with a blank line where templates alternate."""
    wire = await sent_messages([UserMessage("a"), UserMessage([TextPart("b")])], profile(merge_users=merge))
    assert [m["content"] for m in wire] == (["a\n\nb"] if merge else ["a", "b"])


@pytest.mark.parametrize("prefill", [False, True])
async def test_q101_a_history_that_ends_on_the_assistant(prefill: bool) -> None:
    """Q101: a short user turn for servers that refuse prefill."""
    log: Log = [UserMessage("q"), AssistantMessage("partial")]
    wire = await sent_messages(log, profile(prefill=prefill))
    assert wire[-1]["role"] == ("assistant" if prefill else "user")
    assert wire[-1]["content"]


@pytest.mark.parametrize("choice", ["auto", "none", "required", "f"])
@pytest.mark.parametrize("form", ["named", "words", "none"])
async def test_tool_choice_in_the_forms_that_servers_take(choice: str, form: Any) -> None:
    """Q178: a named tool is named, or offered alone; `none` offers nothing where it cannot be said."""
    tools = [schema("f"), schema("g")]
    body = await sent([UserMessage("hi")], profile(tool_choice=form), tools=tools, tool_choice=choice)
    names = [t["function"]["name"] for t in body.get("tools", [])]
    said = body.get("tool_choice")
    if form == "none":
        assert said is None
        assert names == {"none": [], "f": ["f"]}.get(choice, ["f", "g"])
    elif choice == "f":
        assert (said, names) == (
            ({"type": "function", "function": {"name": "f"}}, ["f", "g"])
            if form == "named"
            else ("required", ["f"])
        )
    else:
        assert (said, names) == (choice, ["f", "g"])


@pytest.mark.parametrize(
    ("mode", "with_calls", "without"), [("never", None, None), ("calls", "r", None), ("always", "r", "r")]
)
async def test_q068_reasoning_goes_back_where_it_is_required(
    mode: Any, with_calls: Any, without: Any
) -> None:
    """Q068: verbatim, under the field it came in."""
    async with FakeProvider(default=openai_text("ok")) as server:
        llm = OpenAICompatible("m", "k", f"{server.url}/v1", profile=profile(replay_reasoning=mode))
        kept = {"openai-compatible": {"server": server.url[7:], "reasoningField": "reasoning_content"}}
        log = turn(reasoning="r", provider_metadata=kept)
        log += [AssistantMessage("so", reasoning="r", provider_metadata=kept), UserMessage("next")]
        await llm.generate(LLMRequest(log))
    wire = server.requests[0].json["messages"]
    assert wire[1].get("reasoning_content") == with_calls
    assert wire[3].get("reasoning_content") == without


async def test_q068_q074_foreign_reasoning_is_never_sent() -> None:
    """Q074: not as text, not as reasoning; where the field is required it is empty."""
    foreign = {"gemini": {"parts": [{"text": "secret plan", "thought": True}]}}
    other = {"openai-compatible": {"server": "other.example", "reasoningField": "reasoning"}}
    log = turn(reasoning="secret plan", provider_metadata={**foreign, **other})
    for mode in ("never", "calls", "always"):
        body = await sent(log, profile(replay_reasoning=mode))
        assert "secret plan" not in str(body)
        assert body["messages"][1].get("reasoning_content", "") == ""


async def test_q182_a_blank_result_is_not_sent_blank() -> None:
    """Q182: some servers refuse blank content; a log may hold it all the same."""
    log = turn()
    log[2] = ToolMessage("t1", "f", "")
    assert (await sent_messages(log))[2]["content"].strip()


async def test_schemas_in_the_dialect_of_the_server() -> None:
    """Issue 3: the OpenAPI subset where the profile says so, JSON Schema elsewhere."""
    full = {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}, "b": {"$ref": "#/$defs/B"}},
        "$defs": {"B": {"type": "object", "additionalProperties": False}},
    }
    tools = [ToolSchema("f", "d", [], full)]
    plain = await sent([UserMessage("x")], tools=tools)
    subset = await sent([UserMessage("x")], profile(schema_dialect="openapi"), tools=tools)
    assert plain["tools"][0]["function"]["parameters"] == full
    assert subset["tools"][0]["function"]["parameters"]["properties"] == {
        "a": {"type": "string", "nullable": True},
        "b": {"type": "object"},
    }


async def test_a_second_profile_does_not_get_the_bytes_of_the_first() -> None:
    """Encode once is per server: the same message objects, two sets of rules."""
    log = turn("run7.step2.call-1")
    first = await sent_messages(log, profile(id_codec="alnum9"))
    second = await sent_messages(log, profile(id_codec="any", assistant_empty="null"))
    assert len(first[1]["tool_calls"][0]["id"]) == 9
    assert second[1]["tool_calls"][0]["id"] == "run7.step2.call-1"
    assert second[1]["content"] is None


async def test_models_of_one_server_that_share_a_run_are_each_asked_by_name() -> None:
    """What is kept for a run of the beginning of a request is kept by model."""
    request = LLMRequest([UserMessage("hi")], system="Be brief.")
    for model in ("one", "two", "one"):
        llm = OpenAICompatible(model, "sk-test", "http://fake.example/v1")
        body = json.loads(llm.build_request(request, stream=False).body)
        assert (body["model"], body["messages"][0]["content"]) == (model, "Be brief.")
