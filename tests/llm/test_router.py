"""The router as a model and as `route`, and the client. Requirements S21, S23, S24."""

import time
from collections.abc import Sequence

import pytest

from playhead import AgentLoop, AssistantMessage, ConfigError, LLMError, LLMRequest, LLMResult, tool
from playhead.events import EmitDelta
from playhead.llm.attempts import Target
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.router import AIClient, AIRouter
from playhead.testing import (
    FakeProvider,
    gemini_text,
    hang,
    openai_calls,
    openai_text,
    reply_json,
)
from playhead.types import CallRecord

pytestmark = pytest.mark.anyio

BUSY = reply_json({"error": {"message": "busy"}}, 503)


def on(server: FakeProvider) -> OpenAICompatible:
    return OpenAICompatible("fake-model", "k", f"{server.url}/v1")


class Named:
    """A model that says its name."""

    def __init__(self, name: str) -> None:
        self.provider, self.model = name, "m"
        self.requests: list[LLMRequest] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.requests.append(request)
        return LLMResult(AssistantMessage(self.provider), provider=self.provider, model="m")


async def test_route_is_one_call_through_the_chain_of_its_task() -> None:
    """S21: by task; a task without a chain of its own uses that of `chat`."""
    router = AIRouter({"chat": [Named("a")], "classify": [Named("b")]})
    answers = [(await router.route(task, "hi")).message.content for task in ("chat", "classify", "other")]
    assert answers == ["a", "b", "a"]


async def test_route_keeps_its_time_over_silent_providers() -> None:
    """S21: per call, inside a total; every attempt and skip is logged."""
    records: list[CallRecord] = []
    async with FakeProvider(default=hang()) as one, FakeProvider(openai_text("ok")) as two:
        router = AIRouter([Target(on(one), "one"), Target(on(two), "two")], on_call=records.append)
        started = time.monotonic()
        result = await router.route("chat", "hi", call_timeout=0.15, budget=1.0)
        assert time.monotonic() - started < 0.8
    assert result.message.content == "ok"
    assert [(r.provider, r.status, r.task) for r in records] == [
        ("one", "timeout", "chat"),
        ("two", "success", "chat"),
    ]


async def test_what_is_left_when_the_budget_is_used_up_is_logged_as_skipped() -> None:
    """S20, S21: `skipped_budget`, and the first cause with the list of attempts."""
    records: list[CallRecord] = []
    async with FakeProvider(default=hang()) as one, FakeProvider() as two:
        router = AIRouter([on(one), on(two)], on_call=records.append)
        with pytest.raises(LLMError) as caught:
            await router.route("chat", "hi", call_timeout=5.0, budget=0.1)
        assert two.requests == []
    assert [r.status for r in records] == ["timeout", "skipped_budget"]
    assert len(caught.value.attempts) == 2


async def test_a_loop_fails_over_in_mid_conversation() -> None:
    """J: the router is itself an `AgentLLM`; the history goes on at the other provider, in its form."""
    from playhead.llm.gemini import Gemini

    @tool
    async def now() -> str:
        """Tell the time."""
        return "12:00"

    first = [openai_calls([("now", {})]), BUSY, BUSY]
    async with FakeProvider(*first) as one, FakeProvider(gemini_text("noon")) as two:
        router = AIRouter([on(one), Gemini("g", "k", two.url)])
        result = await AgentLoop(router, tools=[now]).run("what time is it?")
    assert (result.finish_reason, result.text) == ("final", "noon")
    assert [s.provider for s in result.steps] == ["openai-compatible", "gemini"]
    parts = [part for content in two.requests[0].json["contents"] for part in content["parts"]]
    assert [p["functionResponse"]["response"] for p in parts if "functionResponse" in p] == [
        {"result": "12:00"}
    ]


@pytest.mark.parametrize("chains", [[], {}, {"chat": []}])
def test_a_chain_without_a_model_is_refused(chains: Sequence[Target]) -> None:
    """The text says what is missing."""
    with pytest.raises(ConfigError, match="at least one model"):
        AIRouter(chains)


async def test_a_task_without_any_chain_is_a_clear_error() -> None:
    """S23: the text lists the chains there are."""
    with pytest.raises(ConfigError, match="classify"):
        await AIRouter({"classify": [Named("a")]}).route("other", "hi")


async def test_the_client_converses() -> None:
    """S24: with a thread it remembers, without one it does not; a failed question is not remembered."""
    async with FakeProvider(*[openai_text(str(n)) for n in range(4)]) as server:
        client = AIClient(on(server), system="Be terse.")
        assert await client.chat("one", "t") == "0"
        assert await client.chat("two", "t") == "1"
        assert await client.chat("three") == "2"
        assert await client.chat("four", "other") == "3"
    sent = [[m["content"] for m in r.json["messages"]] for r in server.requests]
    assert sent == [
        ["Be terse.", "one"],
        ["Be terse.", "one", "0", "two"],
        ["Be terse.", "three"],
        ["Be terse.", "four"],
    ]


async def test_a_question_that_failed_is_not_part_of_the_conversation() -> None:
    """S24."""
    async with FakeProvider(reply_json({}, 401), openai_text("ok")) as server:
        client = AIClient(on(server))
        with pytest.raises(LLMError):
            await client.chat("one", "t")
        await client.chat("two", "t")
    assert [m["content"] for m in server.requests[1].json["messages"]] == ["two"]
