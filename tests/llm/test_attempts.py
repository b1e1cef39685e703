"""The one attempt loop: what is tried again, what fails over, what ends it. Requirements J."""

import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from playhead import AgentLoop, AssistantMessage, LLMError, LLMRequest, LLMResult, Usage, UserMessage, http
from playhead.errors import LLMTimeoutError, QuotaError, RateLimitError
from playhead.events import Attempt, EmitDelta, LLMDelta, TextDelta
from playhead.llm import call, sse
from playhead.llm.attempts import AttemptPolicy, Attempts, Target
from playhead.llm.base import AgentLLM
from playhead.llm.breaker import MemoryBreakerStore
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.profiles import Profile
from playhead.testing import (
    FakeProvider,
    Reply,
    hang,
    openai_calls,
    openai_sse,
    openai_text,
    reply_bytes,
    reply_json,
)
from playhead.types import CallRecord

pytestmark = pytest.mark.anyio

FAST = AttemptPolicy(retries=2, backoff=0.001)


def on(server: FakeProvider, **more: Any) -> OpenAICompatible:
    return OpenAICompatible("fake-model", "sk-canary-key", f"{server.url}/v1", **more)


def request(**fields: Any) -> LLMRequest:
    return LLMRequest([UserMessage("hi")], **{"timeout": 2.0, **fields})


def refused(status: int, **headers: str) -> Reply:
    return reply_json({"error": {"message": "secret body"}}, status, headers)


CUT = openai_sse("The answer", finish_reason=None, usage=False, done=False)
RESET = openai_sse("The answer", finish_reason=None, usage=False, done=False, cut="rst")
HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<a>"


def shown(deltas: list[LLMDelta]) -> str:
    text = ""
    for d in deltas:
        if isinstance(d, Attempt):
            text = ""
        elif isinstance(d, TextDelta):
            text += d.text
    return text


async def tried(*replies: Reply, policy: AttemptPolicy = FAST, emit: EmitDelta | None = None) -> LLMResult:
    """The answer of one target, all of whose replies must be used up."""
    async with FakeProvider(*replies) as server:
        try:
            return await Attempts([on(server)], policy).generate(request(), emit)
        finally:
            assert server.unused == 0


# ---------------------------------------------------------------- one target


@pytest.mark.parametrize(
    "failure",
    [
        refused(429),
        refused(500),
        refused(503),
        refused(529),
        refused(408),
        reply_bytes(b""),
        reply_bytes(b"x"),
    ],
    ids=["429", "500", "503", "529", "408", "closed", "not http"],
)
async def test_what_may_pass_is_tried_again(failure: Reply) -> None:
    """S21: two retries; the answer is the answer."""
    result = await tried(failure, failure, openai_text("ok"))
    assert result.message.content == "ok"


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
async def test_what_will_not_pass_is_tried_once(status: int) -> None:
    """S21: a rejected request or a refused key is not asked again."""
    with pytest.raises(LLMError):
        await tried(refused(status))


async def test_the_first_cause_is_raised_with_the_list_of_attempts() -> None:
    """Design 7.6, Q250: the first cause, not the last; nothing secret in any text."""
    with pytest.raises(RateLimitError) as caught:
        await tried(refused(429), refused(500), refused(503))
    error = caught.value
    assert [a.status for a in error.attempts] == ["rate_limited", "error", "error"]
    assert [a.http_status for a in error.attempts] == [429, 500, 503]
    everything = str(error) + str(error.__notes__) + repr(error.attempts)
    assert "sk-canary-key" not in everything
    assert "secret body" not in str(error) + repr(error.attempts)


@pytest.mark.parametrize(
    ("header", "longest", "attempts"),
    [("0.01", 1.0, 2), ("86400", 1.0, 1), ("-5", 1.0, 2), ("soon", 1.0, 2)],
)
async def test_retry_after_is_kept_or_not_waited_for(header: str, longest: float, attempts: int) -> None:
    """Q104, Q106: an absurd one is not slept through."""
    policy = AttemptPolicy(retries=1, backoff=0.001, longest_wait=longest)
    async with FakeProvider(refused(429, **{"Retry-After": header}), default=openai_text("ok")) as server:
        started = time.monotonic()
        with contextlib.suppress(RateLimitError):
            await Attempts([on(server)], policy).generate(request())
        assert time.monotonic() - started < 1
    assert len(server.requests) == attempts


@pytest.mark.parametrize("reply", [CUT, RESET])
async def test_an_answer_that_breaks_off_is_made_again_and_shown_once(reply: Reply) -> None:
    """Q111, Q112, design 7.6: an `attempt` voids what was shown; one answer, and all tokens counted."""
    deltas: list[LLMDelta] = []
    result = await tried(reply, openai_sse("The answer is 5."), emit=deltas.append)
    assert result.message.content == shown(deltas) == "The answer is 5."
    assert [d.number for d in deltas if isinstance(d, Attempt)] == [1, 2]
    assert [d.reason for d in deltas if isinstance(d, Attempt)] == ["", "connection"]


async def test_what_was_said_is_kept_when_nothing_better_comes() -> None:
    """Nothing is lost: the partial answer, marked as cut, is what the reader sees in the end."""
    deltas: list[LLMDelta] = []
    result = await tried(refused(500), CUT, refused(500), emit=deltas.append)
    assert (result.message.content, result.stop_reason) == ("The answer", "interrupted")
    assert shown(deltas) == "The answer"


async def test_tokens_of_all_attempts_are_counted() -> None:
    """Issue 4: also those of an answer that broke off."""
    cut = openai_sse("The", finish_reason=None, done=False, usage=True)
    result = await tried(cut, openai_sse("whole"), emit=lambda _: None)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (22, 14)


async def test_an_empty_answer_is_asked_for_once_more() -> None:
    """Q137: one bounded retry, then it is what it is."""
    assert (await tried(openai_text(""), openai_text("ok"))).message.content == "ok"
    assert (await tried(openai_text(""), openai_text(""))).message.content == ""


async def test_a_refused_field_is_dropped_once_and_remembered() -> None:
    """Q098: the repair of the error is applied, and the next call begins with it."""
    no = reply_json({"error": {"message": "Unknown field: stream_options"}}, 400)
    async with FakeProvider(no, openai_sse("a"), openai_sse("b")) as server:
        profile = Profile(name="x", usage_in_stream=True)
        attempts = Attempts([on(server, profile=profile)], FAST)
        for text in ("a", "b"):
            result = await attempts.generate(request(), lambda _: None)
            assert result.message.content == text
    assert ["stream_options" in r.json for r in server.requests] == [True, False, False]


async def test_a_repair_that_does_not_help_ends_as_the_error() -> None:
    """Q098: once; never a loop."""
    no = reply_json({"error": {"message": "Unknown field: stream_options, tool_choice"}}, 400)
    async with FakeProvider(default=no) as server:
        profile = Profile(name="x", usage_in_stream=True)
        with pytest.raises(LLMError, match="rejected"):
            await Attempts([on(server, profile=profile)], FAST).generate(request(), lambda _: None)
    assert len(server.requests) <= 3


class Hinted:
    """A model whose first answer fails with a hint."""

    def __init__(self) -> None:
        self.seen: list[list[Any]] = []

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        self.seen.append([m.content for m in request.messages])
        if len(self.seen) == 1:
            raise LLMError("bad call", repair="Write the call again, as JSON.")
        return LLMResult(AssistantMessage("ok"))


async def test_a_hint_is_given_once_and_stays_out_of_the_history() -> None:
    """Q133: a short hint for the next attempt; the caller's messages are untouched."""
    model, asked = Hinted(), request()
    await Attempts([model], FAST).generate(asked)
    assert model.seen == [["hi"], ["hi", "Write the call again, as JSON."]]
    assert len(asked.messages) == 1


async def test_a_model_that_raises_something_else_is_a_failed_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """S21: not a crash."""

    class Broken:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            raise ZeroDivisionError("sk-secret")

    with pytest.raises(LLMError) as caught:
        await Attempts([Broken()], FAST).generate(request())
    assert len(caught.value.attempts) == 3
    assert "sk-secret" not in str(caught.value)
    assert "ZeroDivisionError" in caplog.text


# ---------------------------------------------------------------- time


async def test_the_budget_bounds_attempts_and_waits_together() -> None:
    """S21: per-call time inside a total; what is left over is not tried."""
    policy = AttemptPolicy(retries=5, call_timeout=0.1, budget=0.3, backoff=0.001)
    async with FakeProvider(default=hang()) as server:
        started = time.monotonic()
        with pytest.raises(LLMTimeoutError):
            await Attempts([on(server)], policy).generate(request())
        assert time.monotonic() - started < 0.9
    assert 2 <= len(server.requests) <= 4


async def test_a_model_that_ignores_its_time_is_cut_off() -> None:
    """S14: an `AgentLLM` of the application's own may not keep time."""

    class Sleepy:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    policy = AttemptPolicy(retries=0, call_timeout=0.05)
    with pytest.raises(LLMTimeoutError, match=r"0\.05 s"):
        await Attempts([Sleepy()], policy).generate(request())


async def test_keep_alives_do_not_hold_off_the_first_token() -> None:
    """Q010: comments reset the gap, not the wait for content."""
    from playhead.testing import stream

    pings = stream([b": ping\n\n"] * 60, pause=0.02, cut="hang")
    async with FakeProvider(pings) as server:
        with pytest.raises(LLMTimeoutError, match="No content"):
            await on(server).generate(request(timeout=1.0, first_token_timeout=0.2), lambda _: None)


async def test_the_wait_for_the_first_token_does_not_bound_the_answer() -> None:
    """Issue 4: once content is there, only the gaps count."""
    slow = openai_sse("a", "b", "c", "d", pause=0.1)
    async with FakeProvider(slow) as server:
        result = await on(server).generate(request(first_token_timeout=0.35), lambda _: None)
    assert result.message.content == "abcd"


async def test_cancelling_the_call_ends_it_at_once() -> None:
    """A CancelledError is never taken for a failure."""
    async with FakeProvider(hang()) as server:
        task = asyncio.ensure_future(Attempts([on(server)], FAST).generate(request(timeout=30)))
        await server.wait_for_requests(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(server.requests) == 1


# ---------------------------------------------------------------- several targets


async def chain(
    *scripts: list[Reply], policy: AttemptPolicy = FAST, emit: EmitDelta | None = None, **more: Any
) -> tuple[LLMResult | LLMError, list[int], list[CallRecord]]:
    """The outcome over one server for each script, how often each was asked, and the records."""
    records: list[CallRecord] = []
    servers = [FakeProvider(*script) for script in scripts]
    async with servers[0]:
        for server in servers[1:]:
            await server.__aenter__()
        targets = [Target(on(s), f"p{n}", "m", more.get("context", {}).get(n)) for n, s in enumerate(servers)]
        attempts = Attempts(targets, policy, breakers=more.get("breakers"), on_call=records.append)
        outcome: LLMResult | LLMError
        try:
            outcome = await attempts.generate(request(), emit)
        except LLMError as error:
            outcome = error
        for server in servers[1:]:
            await server.__aexit__(None, None, None)
    return outcome, [len(server.requests) for server in servers], records


async def test_the_next_provider_answers_when_the_first_keeps_failing() -> None:
    """S21: in order, after the retries; each attempt is recorded with its own provider."""
    outcome, asked, records = await chain([refused(500)] * 3, [openai_text("ok")])
    assert isinstance(outcome, LLMResult)
    assert (outcome.message.content, asked) == ("ok", [3, 1])
    assert [(r.provider, r.status) for r in records] == [("p0", "error")] * 3 + [("p1", "success")]
    assert records[-1].tokens_in == 11


@pytest.mark.parametrize(
    ("status", "goes_on"), [(400, False), (422, False), (401, True), (402, True), (404, True)]
)
async def test_each_class_of_error_has_its_own_way(status: int, goes_on: bool) -> None:
    """S21: a rejected request never fails over; a bad key skips its provider for this call."""
    outcome, asked, _ = await chain([refused(status)], [openai_text("ok")] if goes_on else [])
    assert isinstance(outcome, LLMResult) is goes_on
    assert asked == [1, int(goes_on)]


@pytest.mark.parametrize(
    ("place", "name", "limit", "reply"),
    [
        (call, "MAX_STREAM", 4_000, openai_sse(*["lorem ipsum"] * 200, finish_reason=None, cut="hang")),
        (sse, "MAX_EVENT", 1_000, openai_sse("x" * 2_000)),
        (http.Response.read, "__defaults__", (1_000,), openai_text("x" * 2_000)),
    ],
)
async def test_an_answer_without_an_end_is_not_asked_for_again(
    place: Any, name: str, limit: Any, reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4, bad input: what floods us once would do it again; the next provider is asked instead."""
    monkeypatch.setattr(place, name, limit)
    emit = None if place is http.Response.read else list[LLMDelta]().append
    outcome, asked, records = await chain([reply], [openai_text("ok")], emit=emit)
    assert isinstance(outcome, LLMResult)
    assert (outcome.message.content, asked) == ("ok", [1, 1])
    assert records[0].error_kind == "protocol"


@pytest.mark.parametrize(("sizes", "asked"), [({0: 8, 1: 4, 2: 32}, [1, 0, 1]), ({}, [1, 0, 0])])
async def test_a_history_that_is_too_long_goes_to_a_larger_model_only(
    sizes: dict[int, int], asked: list[int]
) -> None:
    """Issue 4: where the size is known to be larger."""
    too_long = reply_json({"error": {"code": "context_length_exceeded"}}, 400)
    outcome, got, _ = await chain([too_long], [], [openai_text("ok")] if sizes else [], context=sizes)
    assert got == asked
    assert isinstance(outcome, LLMResult) is bool(sizes)


async def test_failing_over_in_mid_answer_shows_one_answer() -> None:
    """Purpose of issue 4: never two answers one after the other."""
    deltas: list[LLMDelta] = []
    policy = AttemptPolicy(retries=0)
    outcome, _, _ = await chain([CUT], [openai_sse("Five.")], policy=policy, emit=deltas.append)
    assert isinstance(outcome, LLMResult)
    assert shown(deltas) == outcome.message.content == "Five."
    assert [(d.provider, d.number) for d in deltas if isinstance(d, Attempt)] == [("p0", 1), ("p1", 2)]


async def test_an_open_breaker_skips_its_provider_and_says_so() -> None:
    """S20, S22: recorded as `skipped_open`; the other answers at once."""
    breakers = MemoryBreakerStore()
    policy = AttemptPolicy(retries=2, backoff=0.001)
    first = await chain([refused(429)] * 3, [openai_text("ok")], policy=policy, breakers=breakers)
    second = await chain([], [openai_text("ok")], policy=policy, breakers=breakers)
    assert (first[1], second[1]) == ([3, 1], [0, 1])
    assert [(r.provider, r.status) for r in second[2]] == [("p0", "skipped_open"), ("p1", "success")]


async def test_when_all_are_resting_the_error_lists_the_skips() -> None:
    """Q106: at once, and not after a sleep."""
    breakers = MemoryBreakerStore()
    policy = AttemptPolicy(retries=2, backoff=0.001)
    await chain([refused(429)] * 3, [refused(429)] * 3, policy=policy, breakers=breakers)
    outcome, asked, records = await chain([], [], policy=policy, breakers=breakers)
    assert isinstance(outcome, LLMError)
    assert asked == [0, 0]
    assert [r.status for r in records] == ["skipped_open", "skipped_open"]
    assert outcome.code == "overloaded"
    assert outcome.retry_after is not None
    assert outcome.retry_after > 20


async def test_a_lone_provider_is_always_tried() -> None:
    """S21, Q116: a breaker is no reason to say no without asking."""
    breakers = MemoryBreakerStore()
    async with FakeProvider(default=refused(429)) as server:
        attempts = Attempts([on(server)], AttemptPolicy(retries=0), breakers=breakers)
        for _ in range(5):
            with pytest.raises(RateLimitError):
                await attempts.generate(request())
        assert len(server.requests) == 5


async def test_a_log_that_fails_never_breaks_a_call(caplog: pytest.LogCaptureFixture) -> None:
    """S20."""

    def broken(record: CallRecord) -> None:
        raise OSError("disk full")

    async with FakeProvider(openai_text("ok")) as server:
        result = await Attempts([on(server)], FAST, on_call=broken).generate(request())
    assert result.message.content == "ok"
    assert "on_call failed" in caplog.text


FAULTS: dict[str, Callable[[], Reply]] = {
    "refused": lambda: reply_bytes(b""),
    "401": lambda: refused(401),
    "429": lambda: refused(429, **{"Retry-After": "0.001"}),
    "500": lambda: refused(500),
    "html": lambda: reply_bytes(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 3\r\n\r\n<a>"
    ),
    "silent": hang,
    "cut at once": lambda: openai_sse(finish_reason=None, usage=False, done=False, cut="rst"),
    "cut in text": lambda: CUT,
    "silent in text": lambda: openai_sse("Half", finish_reason=None, usage=False, done=False, cut="hang"),
    "bad json": lambda: openai_sse("x", finish_reason=None, usage=False, done=False),
    "good": lambda: openai_sse("The one answer."),
}


@pytest.mark.parametrize("seed", range(40))
async def test_any_faults_in_any_order_end_in_one_answer_or_one_error(seed: int) -> None:
    """Issue 4, fault matrix: one stored answer or one error with all attempts, within the budget."""
    rng = random.Random(seed)
    faults = list(FAULTS)
    scripts = [[FAULTS[rng.choice(faults)]() for _ in range(8)] for _ in range(3)]
    deltas: list[LLMDelta] = []
    policy = AttemptPolicy(retries=1, call_timeout=0.15, budget=1.0, backoff=0.001, longest_wait=0.05)
    started = time.monotonic()
    outcome, asked, records = await chain(*scripts, policy=policy, emit=deltas.append)
    assert time.monotonic() - started < 1.6
    assert sum(asked) == sum(not r.status.startswith("skipped") for r in records)
    if isinstance(outcome, LLMResult):
        assert shown(deltas) == outcome.message.content
        assert outcome.message.content
        assert (outcome.stop_reason == "interrupted") is not (records[-1].status == "success")
    else:
        assert len(outcome.attempts) == len(records)
        assert shown(deltas) == ""


async def test_a_tool_is_never_run_twice_by_a_repeated_model_call() -> None:
    """Purpose of issue 4: retries are under the step; what ran, ran once."""
    from playhead import LoopOptions, tool

    ran = itertools.count()

    @tool
    async def pay() -> str:
        """Pay."""
        return f"paid {next(ran)}"

    replies = [refused(500), openai_calls([("pay", {})]), refused(503), openai_text("done")]
    async with FakeProvider(*replies) as server:
        loop = AgentLoop(on(server), tools=[pay], options=LoopOptions(retries=1))
        result = await loop.run("pay")
    assert (result.text, next(ran)) == ("done", 1)


async def test_the_answer_of_a_wrapped_router_is_not_attempted_twice() -> None:
    """Purpose of issue 4: three layers that retry make 27 calls of one; here it is one layer."""
    async with FakeProvider(default=refused(500)) as server:
        attempts: AgentLLM = Attempts([on(server)], FAST)
        result = await AgentLoop(attempts).run("hi")
    assert result.finish_reason == "error"
    assert len(server.requests) == 3


async def test_unknown_usage_does_not_become_zero() -> None:
    """Issue 4: unknown is unknown."""

    class Silent:
        async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
            return LLMResult(AssistantMessage("ok"))

    assert (await Attempts([Silent()], FAST).generate(request())).usage == Usage()


def test_quota_is_not_a_rate_limit() -> None:
    """Q107: waiting does not help."""
    assert not issubclass(QuotaError, RateLimitError)


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [(refused(500), "overloaded"), (reply_bytes(b""), "connection"), (CUT, "The answer")],
    ids=["refused", "closed", "cut"],
)
async def test_q113_without_other_targets_the_streamed_failure_is_the_answer(
    reply: Reply, outcome: str
) -> None:
    """Q113: nothing else is asked; the original error, or what was said."""
    came: LLMResult | LLMError
    async with FakeProvider(reply, default=openai_sse("never")) as server:
        try:
            came = await Attempts([on(server)], AttemptPolicy(retries=0)).generate(request(), lambda _: None)
        except LLMError as error:
            came = error
    assert (came.code if isinstance(came, LLMError) else came.message.content) == outcome
    assert len(server.requests) == 1


async def test_q251_an_answer_names_the_model_that_gave_it() -> None:
    """Q251: in the result, in the step, and in the `attempt` that opens it."""
    async with FakeProvider(refused(500)) as first, FakeProvider(openai_sse("ok")) as second:
        models = [OpenAICompatible(name, "k", f"{s.url}/v1") for name, s in (("a", first), ("b", second))]
        targets = [Target(model, f"p-{model.model}", model.model) for model in models]
        loop = AgentLoop(Attempts(targets, AttemptPolicy(retries=0)))
        events = [event async for event in loop.stream("hi")]
    assert [(e.provider, e.model) for e in events if isinstance(e, Attempt)] == [("p-a", "a"), ("p-b", "b")]
    end = events[-1]
    assert end.type == "run_end"
    # The server's own name of the model, of the answer that there is.
    assert [step.model for step in end.result.steps] == ["fake-model"]
    assert [server.requests[0].json["model"] for server in (first, second)] == ["a", "b"]
