"""What a response costs, and that usage is right from the attempt to the run. Issue 4, item 6."""

import functools
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from playhead import AgentLoop, AIRouter, ConfigError, LLMError, LLMRequest, LLMResult, Usage, UserMessage
from playhead.events import EmitDelta
from playhead.llm import prices
from playhead.llm.anthropic import Anthropic
from playhead.llm.attempts import AttemptPolicy, Attempts, Target
from playhead.llm.base import AgentLLM
from playhead.llm.gemini import Gemini
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.prices import Priced, cost_micro_usd
from playhead.llm.profiles import Profile
from playhead.llm.records import total_usage
from playhead.llm.window import Windowed
from playhead.testing import (
    FakeProvider,
    Reply,
    gemini_text,
    openai_calls,
    openai_sse,
    openai_text,
    reply_json,
)
from playhead.testing.anthropic import anthropic_text
from playhead.types import CallRecord
from tests.loop.support import Scripted, add, text

pytestmark = pytest.mark.anyio

FAST = AttemptPolicy(retries=1, backoff=0.001)
REQUEST = LLMRequest([UserMessage("hi")], timeout=5.0)


def usage(prompt: int | None, answer: int | None, **more: int | None) -> Usage:
    return Usage(prompt, answer, **more)


# ---------------------------------------------------------------- the price of a usage


@pytest.mark.parametrize(
    ("counts", "provider", "model", "cost"),
    [
        (usage(1000, 100), "openai", "gpt-5", 2250),
        (usage(1000, 100, cached_tokens=400), "openai", "gpt-5", 1800),
        (usage(1000, 100, reasoning_tokens=64), "openai", "gpt-5-2025-08-07", 2250),
        (usage(1000, 100, cached_tokens=400), "anthropic", "claude-sonnet-4-5", 3420),
        (usage(1000, 100, cached_tokens=400, cache_write_tokens=300), "anthropic", "claude-sonnet-4-5", 3645),
        (usage(1000, 100), "gemini", "gemini-2.5-pro", 2250),
        (usage(300_000, 100), "google", "gemini-2.5-pro", 751_500),
        (usage(0, 0), "openai", "gpt-5", 0),
    ],
    ids=["plain", "cached", "reasoning, dated", "cache read", "cache written", "our name", "long", "nothing"],
)
def test_a_usage_has_the_list_price(counts: Usage, provider: str, model: str, cost: int) -> None:
    """Issue 4: cached, written and reasoning tokens at their own price; a longer prompt at its tier."""
    assert cost_micro_usd(counts, provider, model) == cost


def test_a_part_of_a_micro_dollar_is_one() -> None:
    """Known and tiny is not nothing."""
    assert cost_micro_usd(usage(1, 0), "openai", "gpt-5-nano") == 1


@pytest.mark.parametrize(
    ("counts", "provider", "model"),
    [
        (Usage(), "openai", "gpt-5"),
        (usage(None, 5), "openai", "gpt-5"),
        (usage(5, None), "openai", "gpt-5"),
        (usage(10, 5, cached_tokens=11), "openai", "gpt-5"),
        (usage(10, 5), "openai", "a-model-of-2087"),
        (usage(10, 5), "openai", ""),
        (usage(10, 5), "nobody-knows", "gpt-5"),
        (usage(10, 5), "openai-compatible", "gpt-5"),
        (usage(10, 5), "", "gpt-5"),
    ],
)
def test_what_is_not_known_has_no_price(counts: Usage, provider: str, model: str) -> None:
    """Issue 4: unknown is unknown, never zero; a name that anybody's server may bear is no provider."""
    assert cost_micro_usd(counts, provider, model) is None


@pytest.mark.parametrize(
    ("llm", "cost"),
    [
        (OpenAICompatible("gpt-5", "k"), 2250),
        (OpenAICompatible("gpt-5", "k", "http://127.0.0.1:1/v1"), None),
        (OpenAICompatible("gpt-5", "k", "https://proxy.example/v1"), None),
        (OpenAICompatible("mistral-large-latest", "k", "https://api.mistral.ai/v1"), True),
        (Gemini("gemini-2.5-pro", "k"), 2250),
        (Anthropic("claude-sonnet-4-5", "k"), 4500),
        (Anthropic("claude-sonnet-4-5", "k", "https://proxy.example"), None),
    ],
    ids=lambda value: getattr(value, "url", str(value)),
)
def test_the_address_tells_who_sends_the_bill(llm: Any, cost: int | bool | None) -> None:
    """A server of one's own that calls its model `gpt-5` is not OpenAI."""
    found = cost_micro_usd(usage(1000, 100), llm.provider, llm.model, url=llm.url)
    assert (found is not None) if cost is True else (found == cost)


# ---------------------------------------------------------------- the wrapper


def on(server: FakeProvider, dialect: str, model: str) -> AgentLLM:
    match dialect:
        case "anthropic":
            return Anthropic(model, "k", server.url)
        case "gemini":
            return Gemini(model, "k", server.url)
    return OpenAICompatible(model, "k", f"{server.url}/v1")


@pytest.mark.parametrize(
    ("dialect", "bill", "model", "reply", "cost"),
    [
        (
            "openai",
            "openai",
            "gpt-5",
            openai_text(
                "ok",
                model="gpt-5-2025-08-07",
                usage={
                    "prompt_tokens": 1000,
                    "completion_tokens": 100,
                    "prompt_tokens_details": {"cached_tokens": 400},
                    "completion_tokens_details": {"reasoning_tokens": 64},
                },
            ),
            1800,
        ),
        (
            "anthropic",
            "anthropic",
            "claude-sonnet-4-5",
            anthropic_text(
                "ok",
                model="claude-sonnet-4-5",
                usage={
                    "input_tokens": 300,
                    "cache_read_input_tokens": 400,
                    "cache_creation_input_tokens": 300,
                    "output_tokens": 100,
                },
            ),
            3645,
        ),
        (
            "gemini",
            "google",
            "gemini-2.5-pro",
            gemini_text(
                "ok",
                modelVersion="gemini-2.5-pro",
                usageMetadata={
                    "promptTokenCount": 1000,
                    "candidatesTokenCount": 36,
                    "thoughtsTokenCount": 64,
                    "cachedContentTokenCount": 400,
                },
            ),
            1800,
        ),
    ],
    ids=["openai", "anthropic", "gemini"],
)
async def test_an_answer_says_what_it_cost(
    dialect: str, bill: str, model: str, reply: Reply, cost: int
) -> None:
    """Issue 4: over each wire, with what was cached and thought; the provider named for a proxy."""
    async with FakeProvider(reply, reply) as server:
        llm = on(server, dialect, model)
        priced = await Priced(llm, bill).generate(REQUEST)
        unknown = await Priced(llm).generate(REQUEST)
    assert priced.usage.cost_micro_usd == cost
    assert (priced.usage.input_tokens, priced.usage.output_tokens) == (1000, 100)
    assert unknown.usage.cost_micro_usd is None


async def test_a_cost_that_the_model_reports_is_kept() -> None:
    """The provider's own number is better than a list price."""
    answer = LLMResult(text().message, usage=usage(1000, 100, cost_micro_usd=7), model="gpt-5")
    assert (await Priced(Scripted(answer), "openai").generate(REQUEST)).usage.cost_micro_usd == 7


async def test_a_priced_model_streams_repairs_and_keeps_its_name() -> None:
    """The wrapper changes nothing else: a refused field is dropped, and the repaired model is priced."""
    no = reply_json({"error": {"message": "Unknown field: stream_options"}}, 400)
    async with FakeProvider(no, openai_sse("o", "k")) as server:
        profile = Profile(name="x", usage_in_stream=True)
        llm = Priced(OpenAICompatible("gpt-5", "k", f"{server.url}/v1", profile=profile), "openai")
        assert (llm.provider, llm.model, llm.owns_attempts) == ("openai-compatible", "gpt-5", False)
        shown: list[Any] = []
        result = await Attempts([llm], FAST).generate(REQUEST, shown.append)
    assert result.message.content == "ok"
    assert [d.text for d in shown if hasattr(d, "text")] == ["o", "k"]
    assert ["stream_options" in r.json for r in server.requests] == [True, False]


async def test_an_address_shows_through_what_is_between() -> None:
    """A wrapper around a wrapper knows whom it speaks to; no address is no address."""
    llm = Priced(Windowed(OpenAICompatible("gpt-5", "k"), turns=3))
    assert llm.url == "https://api.openai.com/v1/chat/completions"

    class Nowhere(Scripted):
        provider, url = "anthropic", ""

    answer = LLMResult(text().message, usage=usage(1000, 100), model="claude-sonnet-4-5")
    assert (await Priced(Nowhere(answer)).generate(REQUEST)).usage.cost_micro_usd == 4500


@pytest.mark.parametrize("wrap", [Priced, partial(Windowed, turns=3)])
async def test_a_router_stays_the_only_one_that_tries_again(wrap: Callable[[AgentLLM], AgentLLM]) -> None:
    """Purpose of issue 4: three layers that each retry make 27 calls of one."""
    async with FakeProvider(default=reply_json({"error": {}}, 500)) as server:
        router = AIRouter([on(server, "openai", "gpt-5")], policy=AttemptPolicy(retries=0))
        assert (await AgentLoop(wrap(router)).run("hi")).error_code == "overloaded"
        assert len(server.requests) == 1


async def test_errors_pass_through() -> None:
    async with FakeProvider(reply_json({"error": {}}, 400)) as server:
        with pytest.raises(LLMError, match="rejected"):
            await Priced(on(server, "openai", "gpt-5")).generate(REQUEST)


async def test_loading_the_prices_does_not_hold_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Design 4: while they load, in a thread, the first answer is on its way."""
    asked = threading.Event()
    load = prices.load_prices.__wrapped__

    @functools.cache
    def slow() -> Any:
        assert asked.wait(30), "the model was asked only after the prices were loaded"
        return load()

    class Model:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            asked.set()
            return LLMResult(text().message, usage=usage(1000, 100), model="gpt-5")

    monkeypatch.setattr(prices, "load_prices", slow)
    assert (await Priced(Model(), "openai").generate(REQUEST)).usage.cost_micro_usd == 2250


async def test_prices_that_cannot_be_loaded_cost_nobody_an_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Unknown, and said in the log."""

    @functools.cache
    def broken() -> Any:
        raise OSError("unreadable")

    monkeypatch.setattr(prices, "load_prices", broken)
    answer = LLMResult(text("ok").message, usage=usage(1000, 100), model="gpt-5")
    result = await Priced(Scripted(answer), "openai").generate(REQUEST)
    assert (result.message.content, result.usage.cost_micro_usd) == ("ok", None)
    assert "costs stay unknown" in caplog.text


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extra `prices`."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    prices.load_prices.cache_clear()
    with pytest.raises(ConfigError, match=r"playhead\[prices\]"):
        Priced(Scripted())
    with pytest.raises(ConfigError, match=r"playhead\[prices\]"):
        cost_micro_usd(usage(1, 1), "openai", "gpt-5")


# ---------------------------------------------------------------- attempts, steps, runs


CUT = openai_sse("The answer", finish_reason=None, usage=True, done=False)
SILENT_CUT = openai_sse("The answer", finish_reason=None, usage=False, done=False)


async def over(
    first: list[Reply], second: list[Reply], way: str = "chain", policy: AttemptPolicy = FAST
) -> tuple[LLMResult, list[CallRecord]]:
    """The answer of two priced providers, and a record of each attempt."""
    records: list[CallRecord] = []
    async with FakeProvider(*first) as one, FakeProvider(*second) as two:
        models = [on(one, "openai", "gpt-5-mini"), on(two, "openai", "gpt-5-nano")]
        if way == "chain":
            targets = [Target(Priced(m, "openai"), f"p{n}") for n, m in enumerate(models)]
            llm: AgentLLM = Attempts(targets, policy, on_call=records.append)
        else:
            targets = [Target(m, f"p{n}") for n, m in enumerate(models)]
            llm = Priced(AIRouter(targets, policy=policy, on_call=records.append), "openai")
            assert llm.owns_attempts
        result = await llm.generate(REQUEST, lambda _: None)
        assert one.unused + two.unused == 0
    return result, records


@pytest.mark.parametrize("way", ["chain", "router"])
async def test_each_attempt_is_priced_by_what_answered_it(way: str) -> None:
    """Issue 4: also around a router, whose sum no single price would fit."""
    dear, cheap = answered_by("gpt-5-mini", CUT), answered_by("gpt-5-nano", openai_sse("whole"))
    result, records = await over([dear, dear], [cheap], way)
    costs = [
        cost_micro_usd(usage(11, 7), "openai", model) for model in ("gpt-5-mini", "gpt-5-mini", "gpt-5-nano")
    ]
    assert result.usage.cost_micro_usd == sum(c for c in costs if c)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (33, 21)
    assert [(r.provider, r.status) for r in records] == [("p0", "error"), ("p0", "error"), ("p1", "success")]
    assert [(r.tokens_in, r.tokens_out) for r in records] == [(11, 7)] * 3
    assert [r.cost_micro_usd for r in records] == costs
    assert costs[0] != costs[-1] is not None


def answered_by(model: str, reply: Reply) -> Reply:
    """The same bytes with another model's name, which must be as long."""
    assert len(model) == len("fake-model")
    return replace(reply, writes=[piece.replace(b"fake-model", model.encode()) for piece in reply.writes])


async def test_an_attempt_that_reported_nothing_makes_the_sum_unknown() -> None:
    """Unknown is unknown: half of what was used would pass for all of it."""
    result, _ = await over([SILENT_CUT], [openai_sse("whole")], policy=AttemptPolicy(retries=0))
    assert result.message.content == "whole"
    assert result.usage == Usage()


async def test_an_answer_that_is_kept_though_it_broke_off_counts_once() -> None:
    """The same for the last of several that broke off."""
    async with FakeProvider(CUT, CUT) as server:
        result = await Attempts([on(server, "openai", "m")], FAST).generate(REQUEST, lambda _: None)
    assert (result.stop_reason, result.usage) == ("interrupted", Usage(22, 14))


async def test_an_empty_answer_that_was_asked_for_again_counts() -> None:
    """Q137: its tokens were used, too."""
    async with FakeProvider(openai_text(""), openai_text("ok")) as server:
        result = await Attempts([on(server, "openai", "m")], FAST).generate(REQUEST)
    assert (result.message.content, result.usage.input_tokens) == ("ok", 22)


async def test_steps_and_run_add_up() -> None:
    """Issue 4: per step and run, with cached and reasoning tokens and cost."""
    spent = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "prompt_tokens_details": {"cached_tokens": 400},
        "completion_tokens_details": {"reasoning_tokens": 64},
    }
    more: dict[str, Any] = {"model": "gpt-5", "usage": spent}
    replies = openai_calls([("add", {"a": 1, "b": 2})], **more), openai_text("3", **more)
    async with FakeProvider(*replies) as server:
        loop = AgentLoop(Priced(on(server, "openai", "gpt-5"), "openai"), tools=[add])
        result = await loop.run("1 + 2?")
    assert [step.usage for step in result.steps] == [Usage(1000, 100, 400, 64, 1800)] * 2
    assert result.usage == Usage(2000, 200, 800, 128, 3600)


def test_a_sum_of_nothing_is_unknown() -> None:
    assert total_usage([]) == Usage()
    assert total_usage([Usage(1, 2), Usage(3, None)]) == Usage(4)
