"""A run whose answer has to be a value, or to pass a check. Issue 4 item 5, design 4."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
import pydantic
import pytest

from playhead import (
    AgentLoop,
    AgentRunResult,
    AssistantMessage,
    ConfigError,
    LLMRequest,
    LLMResult,
    LoopOptions,
    Usage,
    UserMessage,
    connect,
)
from playhead.events import RunEnd, TextDelta, UserMessageEvent
from playhead.port import PlainPort
from playhead.server.wire import event_frame
from playhead.session.shown import Shown
from playhead.storage.memory_ledger import MemoryLedger
from playhead.testing import (
    FakeProvider,
    anthropic_sse,
    gemini_calls,
    gemini_sse,
    gemini_text,
    openai_calls,
    openai_sse,
    openai_text,
)
from tests.loop.support import Scripted, add, assert_pairs, calls, text
from tests.session.models import new_port

pytestmark = pytest.mark.anyio
T = TypeVar("T")


class Town(msgspec.Struct):
    name: str
    people: int


class Model(pydantic.BaseModel):
    name: str


GOOD = '{"name": "Oslo", "people": 7}'
BAD = '{"name": "Oslo", "people": "many"}'
OSLO = Town("Oslo", 7)


def options(**more: Any) -> LoopOptions:
    return LoopOptions(**{"retries": 0, **more})


async def run(model: Scripted, **more: Any) -> AgentRunResult:
    given = {"output_type": Town, "options": options(), **more}
    return await AgentLoop(model, **given).run("Which town?")


# ---------------------------------------------------------------- the value


async def test_the_answer_is_a_value_of_the_type() -> None:
    """R: `AgentLoop(..., output_type=...)` and `result.output`; the schema goes to the model."""
    model = Scripted(text(GOOD))
    result = await run(model)
    assert (result.finish_reason, result.output, result.text) == ("final", OSLO, GOOD)
    assert model.requests[0].output_schema is not None
    assert list(model.requests[0].output_schema["properties"]) == ["name", "people"]


async def test_without_a_type_there_is_neither_schema_nor_value() -> None:
    model = Scripted(text(GOOD))
    result = await AgentLoop(model).run("hi")
    assert (result.output, model.requests[0].output_schema) == (None, None)


def test_a_wrong_type_is_told_when_the_loop_is_made() -> None:
    """Misuse raises, and early."""
    with pytest.raises(ConfigError, match="complex"):
        AgentLoop(Scripted(), output_type=complex)


@pytest.mark.parametrize("wrong", [{"max_asks": -1}, {"max_asks": True}, {"max_asks": 1.0}])
def test_a_limit_out_of_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="max_asks"):
        LoopOptions(**wrong)


# ---------------------------------------------------------------- asking again


async def test_a_wrong_answer_is_sent_back_with_what_is_wrong() -> None:
    """R: a user message with the complaint, and another step; the ids are those that a replay makes."""
    model = Scripted(text(BAD), text(GOOD))
    result = await run(model)
    assert (result.finish_reason, result.output, len(result.steps)) == ("final", OSLO, 2)
    assert [m.role for m in result.messages] == ["user", "assistant", "user", "assistant"]
    ask = result.messages[2]
    assert isinstance(ask, UserMessage)
    assert ask.id == f"{result.turn_id}/1/ask"
    assert '`people`: expected integer, got "many" (string)' in str(ask.content)
    assert [m.content for m in model.requests[1].messages] == ["Which town?", BAD, ask.content]


@pytest.mark.parametrize("asks", [0, 1, 3])
async def test_it_is_asked_for_so_often_and_no_more(asks: int) -> None:
    """R: then the run ends as `output_mismatch`, with the last text kept."""
    model = Scripted(*[text(BAD)] * (asks + 1))
    result = await run(model, options=options(max_asks=asks))
    assert (result.finish_reason, result.error_code) == ("error", "output_mismatch")
    assert (result.text, result.output, len(result.steps)) == (BAD, None, asks + 1)
    assert "`people`" in (result.error_message or "")
    assert isinstance(result.messages[-1], AssistantMessage), "nobody was asked what nobody will answer"
    assert not model.answers


async def test_two_asks_are_the_default() -> None:
    result = await run(Scripted(*[text(BAD)] * 3))
    assert (result.error_code, len(result.steps)) == ("output_mismatch", 3)


async def test_an_ask_is_a_step_and_counts() -> None:
    """R: each a step that counts toward max_steps."""
    result = await run(Scripted(text(BAD), text(BAD)), options=options(max_steps=2, max_asks=9))
    assert (result.finish_reason, result.error_code, len(result.steps)) == ("error", "output_mismatch", 2)
    assert isinstance(result.messages[-1], AssistantMessage)


async def test_tools_run_between_the_asks() -> None:
    """A model may look things up again before it answers anew."""
    model = Scripted(calls("add"), text("no JSON"), calls("add"), text(GOOD))
    result = await run(model, tools=[add])
    assert (result.output, len(result.steps)) == (OSLO, 4)
    assert "no JSON object" in str(result.messages[4].content)
    assert_pairs(result.messages)


async def test_text_beside_calls_is_not_an_answer() -> None:
    """What a model says before it has the results is not held to the form."""
    said = LLMResult(AssistantMessage("Let me see.", calls("add").message.tool_calls), "tool_calls")
    result = await run(Scripted(said, text(GOOD)), tools=[add])
    assert (result.output, len(result.steps)) == (OSLO, 2)


async def test_stop_when_still_ends_the_run_between_asks() -> None:
    """S2: after each step; then nothing is asked that nobody will answer."""
    result = await run(Scripted(text(BAD)), stop_when=lambda steps: len(steps) == 1)
    assert (result.finish_reason, result.output) == ("stop", None)
    assert [m.role for m in result.messages] == ["user", "assistant"]


async def test_a_limit_ends_the_run_between_asks() -> None:
    """An ask costs as any other request."""
    said = LLMResult(AssistantMessage(BAD), "stop", Usage(90, 20))
    result = await run(Scripted(said), options=options(max_run_tokens=100))
    assert (result.error_code, [m.role for m in result.messages]) == ("limit", ["user", "assistant"])


async def test_a_cut_answer_is_asked_for_again_and_told_so() -> None:
    """Design 4: never plain; the model is told to be shorter."""
    model = Scripted(LLMResult(AssistantMessage('{"name": "Os'), "length"), text(GOOD))
    result = await run(model)
    assert result.output == OSLO
    assert "make it shorter" in str(result.messages[2].content)


async def test_a_filtered_answer_is_not_asked_for_again() -> None:
    """The filter would only strike again."""
    result = await run(Scripted(LLMResult(AssistantMessage(BAD), "content_filter")))
    assert (result.error_code, len(result.steps)) == ("output_mismatch", 1)


async def test_no_text_at_all_stays_the_error_that_it_is() -> None:
    result = await run(Scripted(text("")))
    assert (result.finish_reason, result.error_code) == ("error", "empty_answer")


@pytest.mark.parametrize(("last", "output"), [(GOOD, OSLO), (BAD, None)])
async def test_the_answer_at_the_cap_is_read_and_not_asked_for_again(last: str, output: Any) -> None:
    """`wrap_up`: there is no step left."""
    model = Scripted(calls("add"), text(last))
    result = await run(model, tools=[add], options=options(max_steps=1, wrap_up=True))
    assert (result.finish_reason, result.text, result.output) == ("max_steps", last, output)


# ---------------------------------------------------------------- checks of the application's own


async def test_a_check_is_asked_after_the_type() -> None:
    """R: `(text)` to None or a complaint; the value has been read before."""
    seen: list[str] = []

    def check(answer: str) -> str | None:
        seen.append(answer)
        return None if len(seen) == 2 else "Name a bigger town."

    model = Scripted(text(BAD), text(GOOD), text(GOOD))
    result = await run(model, options=options(check=check))
    assert (result.output, seen) == (OSLO, [GOOD, GOOD])
    assert result.messages[4].content == "Name a bigger town."


async def test_a_check_needs_no_type_and_may_be_async() -> None:
    async def check(answer: str) -> str | None:
        await asyncio.sleep(0)
        return None if answer.isupper() else "Shout."

    result = await run(Scripted(text("oslo"), text("OSLO")), output_type=None, options=options(check=check))
    assert (result.text, result.output, result.messages[2].content) == ("OSLO", None, "Shout.")


@pytest.mark.parametrize("fault", [ZeroDivisionError("sk-secret-0123456789"), 7])
async def test_a_check_that_fails_ends_the_run(fault: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A fault of the application's is not the model's: it is not asked again, and no text leaks."""

    def check(answer: str) -> Any:
        if isinstance(fault, Exception):
            raise fault
        return fault

    result = await run(Scripted(text(GOOD)), options=options(check=check))
    assert (result.finish_reason, result.error_code, result.text) == ("error", "check_failed", GOOD)
    assert "sk-secret" not in (result.error_message or "") + caplog.text
    assert "check" in caplog.text


async def test_a_stop_during_a_check_ends_the_run_with_the_text() -> None:
    """Design 4: a stop is cooperative; nothing is lost."""
    cancel = asyncio.Event()

    async def check(answer: str) -> str | None:
        cancel.set()
        await asyncio.Event().wait()
        return None

    loop = AgentLoop(Scripted(text(GOOD)), options=options(check=check))
    result = await loop.run("hi", cancel=cancel)
    assert (result.finish_reason, result.text) == ("cancelled", GOOD)


# ---------------------------------------------------------------- events, stores, replays


async def test_the_ask_is_an_event_and_a_row_of_the_thread() -> None:
    """Design 5: written in the transaction of its event, between the two answers."""
    store = MemoryLedger()
    message = UserMessage("Which town?")
    port = await new_port(store, message)
    loop = AgentLoop(Scripted(text(BAD), text(GOOD)), output_type=Town, options=options())
    result = await loop.run_on(port, made=(message,))
    rows = await store.turns.window("t")
    assert [row.id for row in rows] == [m.id for m in result.messages]
    assert [row.role for row in rows] == ["user", "assistant", "user", "assistant"]
    events = [Shown.of_row(row).event for row in (await store.events.after("t", 0)).rows]
    kinds = [event.type for event in events]
    at = kinds.index("user_message", 2)
    assert kinds[at - 1 : at + 2] == ["step_end", "user_message", "step_start"]
    asked = events[at]
    assert isinstance(asked, UserMessageEvent)
    assert (asked.message.id, asked.step) == (f"{result.turn_id}/1/ask", 1)


class Recording(PlainPort):
    """A port that records each effect as JSON, and answers from the record when there is one."""

    def __init__(self, record: dict[str, bytes], **plain: Any) -> None:
        super().__init__([UserMessage("Which town?", id="u", timestamp=1)], turn_id="t", run_id="r", **plain)
        self.record = record

    def step(self, name: str, type: type[T], fn: Callable[[], Awaitable[T]]) -> Awaitable[T]:
        async def effect() -> T:
            if name not in self.record:
                self.record[name] = msgspec.json.encode(await fn())
            return msgspec.json.decode(self.record[name], type=type)

        return effect()


async def test_a_replay_comes_to_the_same_run_without_model_or_check() -> None:
    """Design 5: the complaint is part of the model step's record; the rest follows from it."""
    verdicts = iter(["No.", None])
    record: dict[str, bytes] = {}
    loop = AgentLoop(
        Scripted(text(GOOD), text(BAD), text(GOOD)),
        output_type=Town,
        options=options(check=lambda answer: next(verdicts)),
    )
    first = await loop.run_on(Recording(record))
    second = await loop.run_on(Recording(record))
    assert (first.output, len(first.steps)) == (OSLO, 3)
    assert [_told(m) for m in second.messages] == [_told(m) for m in first.messages]
    assert (second.finish_reason, second.output, second.text) == ("final", OSLO, first.text)


def _told(message: Any) -> tuple[str, str, Any]:
    return message.role, message.id, message.content


@pytest.mark.parametrize(
    ("kind", "answer", "wire"),
    [
        (Town, GOOD, b'"output":{"name":"Oslo","people":7}'),
        (Model, '{"name": "Oslo"}', b'"output":{"name":"Oslo"}'),
        (list[int], '{"result": [1]}', b'"output":[1]'),
        (set[int], '{"result": [1]}', b'"output":[1]'),
        (None, "Oslo", b'"text":"Oslo"'),
    ],
)
async def test_a_value_of_any_type_goes_out_as_json(kind: Any, answer: str, wire: bytes) -> None:
    """A front end reads the value; in this process it is an instance."""
    loop = AgentLoop(Scripted(text(answer)), output_type=kind, options=options())
    events = [event async for event in loop.stream("hi")]
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert wire in event_frame(end)
    assert kind in (None, list[int], set[int]) or isinstance(end.result.output, kind)


# ---------------------------------------------------------------- over the wire

WIRES: dict[str, tuple[str, Sequence[Any]]] = {
    "by instructions": ("openai-compatible", [openai_text(BAD), openai_text(f"```json\n{GOOD}\n```")]),
    "by instructions, streamed": (
        "openai-compatible",
        [openai_sse("So: ", BAD), openai_sse(GOOD[:9], GOOD[9:])],
    ),
    "by field": ("gemini", [gemini_text(BAD), gemini_text(GOOD)]),
    "by field, streamed": ("anthropic", [anthropic_sse(BAD), anthropic_sse(GOOD[:9], GOOD[9:])]),
}


@pytest.mark.parametrize(("provider", "script"), WIRES.values(), ids=list(WIRES))
async def test_a_wrong_answer_is_mended_whatever_the_api(provider: str, script: Sequence[Any]) -> None:
    """R: every way ends in the same value, streamed or not."""
    async with FakeProvider(*script) as server:
        base = server.url if provider != "openai-compatible" else f"{server.url}/v1"
        loop = AgentLoop(connect(provider, "m", "k", base), output_type=Town, options=options())
        events = [event async for event in loop.stream("Which town?")]
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert (end.result.finish_reason, end.result.output) == ("final", OSLO)
    shown = [e for e in events if isinstance(e, TextDelta) and e.step == 2]
    assert "".join(e.text for e in shown) == end.result.text
    assert {e.message_id for e in shown} == {end.result.messages[-1].id}


async def test_the_tool_of_the_answer_is_never_seen() -> None:
    """R: never shown as an ordinary tool call; its arguments are text deltas, by offset."""
    script = (
        gemini_sse(calls=[("add", {"a": 2, "b": 3})]),
        gemini_sse("The answer:", calls=[("final_output", {"name": "Oslo", "people": 7})]),
    )
    async with FakeProvider(*script) as server:
        llm = connect("gemini", "gemini-2.5-flash", "k", server.url)
        loop = AgentLoop(llm, tools=[add], output_type=Town, options=options())
        events = [event async for event in loop.stream("Which town?")]
        first, second = (request.json for request in server.requests)
    end = events[-1]
    assert isinstance(end, RunEnd)
    assert end.result.output == OSLO
    assert end.result.text == 'The answer:\n\n{"name":"Oslo","people":7}'
    deltas = [e for e in events if isinstance(e, TextDelta)]
    assert [(d.offset, d.text) for d in deltas] == [
        (0, "The answer:"),
        (11, '\n\n{"name":"Oslo","people":7}'),
    ]
    assert [e.type for e in events].count("tool_call") == 1
    assert not any("final_output" in event_frame(event).decode() for event in events)
    names = [[d["name"] for d in body["tools"][0]["functionDeclarations"]] for body in (first, second)]
    assert names == [["add", "final_output"]] * 2


async def test_a_demanded_call_is_released_and_then_the_answer_may_come() -> None:
    """A first call is demanded; the tool of the answer is no way around it."""
    script = (
        gemini_calls([("add", {"a": 1, "b": 1})]),
        gemini_calls([("final_output", {"name": "A", "people": 1})]),
    )
    async with FakeProvider(*script) as server:
        llm = connect("gemini", "gemini-2.5-flash", "k", server.url)
        demand = options(tool_choice="required")
        result = await AgentLoop(llm, tools=[add], output_type=Town, options=demand).run("hi")
        offered = [request.json["tools"][0]["functionDeclarations"] for request in server.requests]
    assert result.output == Town("A", 1)
    assert [[d["name"] for d in tools] for tools in offered] == [["add"], ["add", "final_output"]]


async def test_a_model_that_ignores_the_schema_is_told_it() -> None:
    """Any `AgentLLM` will do: the first complaint shows the schema."""

    class Deaf:
        async def generate(self, request: LLMRequest, emit: Any = None) -> LLMResult:
            told = any('"people"' in str(m.content) for m in request.messages)
            return text(GOOD if told else "Oslo, I would say.")

    result = await AgentLoop(Deaf(), output_type=Town, options=options()).run("Which town?")
    assert (result.output, len(result.steps)) == (OSLO, 2)


async def test_the_calls_of_a_whole_answer_beside_the_final_one_run_first() -> None:
    """Design 7.1: complete calls run; the answer is given anew with their results."""
    both = [("add", {"a": 1, "b": 1}), ("final_output", {"name": "A", "people": 0})]
    script = (gemini_calls(both), gemini_calls([("final_output", {"name": "A", "people": 2})]))
    async with FakeProvider(*script) as server:
        llm = connect("gemini", "gemini-2.5-flash", "k", server.url)
        result = await AgentLoop(llm, tools=[add], output_type=Town, options=options()).run("hi")
    assert result.output == Town("A", 2)
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert_pairs(result.messages)


async def test_a_plain_answer_where_the_tool_was_offered_is_read_or_sent_back() -> None:
    """`auto` leaves the model free to answer in text."""
    script = (openai_text("It is Oslo."), openai_text(GOOD))
    async with FakeProvider(*script) as server:
        llm = connect("openai-compatible", "m", "k", f"{server.url}/v1", profile="groq")
        result = await AgentLoop(llm, tools=[add], output_type=Town, options=options()).run("hi")
    assert (result.output, len(result.steps)) == (OSLO, 2)


async def test_arguments_that_do_not_parse_are_sent_back_too() -> None:
    """The text of the broken call is kept and complained of as any other."""
    script = (openai_calls([("final_output", '{"name": "Os')]), openai_calls([("final_output", GOOD)]))
    async with FakeProvider(*script) as server:
        llm = connect("openai-compatible", "m", "k", f"{server.url}/v1", profile="groq")
        result = await AgentLoop(llm, output_type=Town, options=options()).run("hi")
    assert (result.output, result.steps[0].assistant_message.content) == (OSLO, '{"name": "Os')
    assert "not complete" in str(result.messages[2].content)
