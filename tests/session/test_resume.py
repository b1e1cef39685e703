"""Whoever comes back has everything once, wherever the connection broke: inside a text too."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from playhead import AgentLoop
from playhead.errors import OverloadedError, StoreError
from playhead.events import EmitDelta, ReasoningDelta, TextDelta
from playhead.llm.attempts import AttemptPolicy, Attempts
from playhead.session.feed import MOST_ITEMS
from playhead.session.sessions import Sessions
from playhead.types import AssistantMessage, LLMRequest, LLMResult, UserMessage
from tests.session.clients import Client
from tests.session.models import CALLS, GateLLM, StrictLLM, loop_of, quick, slow
from tests.session.readers import all_of

pytestmark = pytest.mark.anyio

QUICK = AttemptPolicy(retries=2, backoff=0.001)
THOUGHT, SAID = "Let me think about that, slowly.", "The answer is forty-two, as everybody knows by now. 🎬"


class Talker:
    """Thinks, calls two tools, thinks again, breaks off in the middle of its answer, and says it anew."""

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.failed = False

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        assert emit is not None
        for piece in (THOUGHT[n : n + 4] for n in range(0, len(THOUGHT), 4)):
            emit(ReasoningDelta(piece))
            await asyncio.sleep(self.pause)
        if isinstance(request.messages[-1], UserMessage):
            return LLMResult(AssistantMessage("", CALLS, reasoning=THOUGHT), "tool_calls")
        for n, piece in enumerate(SAID[n : n + 3] for n in range(0, len(SAID), 3)):
            if n == 6 and not self.failed:
                self.failed = True
                raise OverloadedError("busy")
            emit(TextDelta(piece))
            await asyncio.sleep(self.pause)
        return LLMResult(AssistantMessage(SAID, reasoning=THOUGHT), "stop")


def talking(pause: float = 0.0) -> AgentLoop:
    return AgentLoop(Attempts([Talker(pause)], QUICK), tools=[quick, slow])


async def read_in_parts(sessions: Sessions, run_id: str, parts: Sequence[int], pause: float = 0.0) -> Client:
    """Follow a run over connections that break after so many events each."""
    client = Client()
    for part in [*parts, 10**9]:
        async with aclosing(sessions.shown(run_id, after=client.id)) as events:
            count = 0
            async for shown in events:
                client.take(shown)
                count += 1
                if count >= part or client.over:
                    break
        if client.over:
            return client
        await asyncio.sleep(pause)
    raise AssertionError("the stream ended before the run")


@pytest.mark.parametrize("flush_seconds", [0.0, 0.01, 60.0])
async def test_whoever_comes_back_has_everything_once(store_url: str | None, flush_seconds: float) -> None:
    """Q212: at every event of a run, live; and after the end, from every place that it was given."""
    async with Sessions(talking(0.001), store_url, flush_seconds=flush_seconds) as sessions:
        run = await sessions.start("t", "go")
        readers = [read_in_parts(sessions, run.run_id, [n] * 200, 0.001 * (n % 3)) for n in range(1, 8)]
        steady, *parted = await asyncio.gather(read_in_parts(sessions, run.run_id, []), *readers)
        late = await read_in_parts(sessions, run.run_id, [])
        for client in (*parted, late):
            assert client.known == steady.known
        assert list(steady.texts.values()) == [SAID]
        assert [event["type"] for event in steady.recorded][:2] == ["run_start", "user_message"]
        await check_every_place(sessions, run.run_id, late)


async def check_every_place(sessions: Sessions, run_id: str, whole: Client) -> None:
    """Resume from every id that a reader of the finished run may hold, inside its text too."""
    last = whole.recorded[-1]["seq"]
    text = next(iter(whole.texts.values()))
    for seq in range(last):
        got = [shown async for shown in sessions.shown(run_id, after=seq)]
        assert [shown.seq for shown in got] == list(range(seq + 1, last + 1))
        first = next((shown.event for shown in got if shown.type == "text_delta"), None)
        if not isinstance(first, TextDelta) or any(shown.type == "attempt" for shown in got):
            continue
        for offset in range(first.offset, len(text), 7):
            rest = [s.event async for s in sessions.shown(run_id, after=f"{seq}.{offset}")]
            told = "".join(event.text for event in rest if isinstance(event, TextDelta))
            assert text[:offset] + told == text


class Wordy:
    """Says something beside its calls, and then something longer."""

    async def generate(self, request: LLMRequest, emit: EmitDelta | None = None) -> LLMResult:
        assert emit is not None
        calls = CALLS if isinstance(request.messages[-1], UserMessage) else ()
        text = SAID if calls else SAID + THOUGHT
        for piece in (text[n : n + 3] for n in range(0, len(text), 3)):
            emit(TextDelta(piece))
            await asyncio.sleep(0.001)
        return LLMResult(AssistantMessage(text, calls), "tool_calls" if calls else "stop")


@pytest.mark.parametrize("flush_seconds", [0.0, 0.01, 60.0])
async def test_who_left_at_the_end_of_a_text_has_the_next_one_whole(
    store_url: str | None, flush_seconds: float
) -> None:
    """Q212: what a reader had of one text says nothing of the next."""
    loop = AgentLoop(Wordy(), tools=[quick, slow])
    async with Sessions(loop, store_url, flush_seconds=flush_seconds) as sessions:
        run = await sessions.start("t", "go")
        readers = [read_in_parts(sessions, run.run_id, [n] * 200) for n in range(1, 6)]
        for client in await asyncio.gather(*readers):
            assert list(client.texts.values()) == [SAID, SAID + THOUGHT]


@given(
    parts=st.lists(st.integers(1, 12), max_size=12),
    flush=st.sampled_from([0.0, 0.002, 60.0]),
    pause=st.sampled_from([0.0, 0.0005]),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_breaks_lose_and_double_nothing(
    parts: list[int], flush: float, pause: float, tmp_path: Path
) -> None:
    """Q212: wherever and however often a connection breaks, whatever is flushed by then."""

    async def go() -> None:
        async with Sessions(talking(pause), flush_seconds=flush) as sessions:
            run = await sessions.start("t", "go")
            broken = asyncio.create_task(read_in_parts(sessions, run.run_id, parts))
            steady = await read_in_parts(sessions, run.run_id, [])
            assert (await broken).known == steady.known

    asyncio.run(go())


async def test_what_was_shown_of_a_broken_attempt_is_void_for_who_comes_later(store_url: str | None) -> None:
    """Design 4: the boundary after visible text is recorded, so a replay does not mix two answers."""
    async with Sessions(talking(0.001), store_url, flush_seconds=0.0) as sessions:
        run = await sessions.start("t", "go")
        live = [shown async for shown in sessions.shown(run.run_id)]
        late = [shown async for shown in sessions.shown(run.run_id)]
    for shown in (live, late):
        attempts = [one.event for one in shown if one.type == "attempt" and one.seq is not None]
        assert [event.number for event in attempts if event.type == "attempt"] == [2]


async def test_one_who_never_reads_on_costs_a_bounded_amount_and_still_gets_all(url: str) -> None:
    """Q208: the feed forgets; the store does not; the run does not wait."""
    many = MOST_ITEMS * 3
    llm = StrictLLM(reply="x" * many)
    async with Sessions(loop_of(llm), url, flush_seconds=0.0) as sessions:
        run = await sessions.start("t", "go")
        stalled = sessions.shown(run.run_id)
        client = Client()
        client.take(await anext(stalled))
        await all_of(sessions, run.run_id)
        for _ in range(3):
            await sessions.run("t", "more")
        async for shown in stalled:
            client.take(shown)
    assert list(client.texts.values()) == ["x" * many]
    assert client.over == {run.run_id}


@pytest.mark.parametrize("after", ["x", "-1", "1.x", "1.-2", "9" * 30, "1.2.3", "٣", "NaN"])
async def test_a_place_that_is_none_is_refused(after: str) -> None:
    """Bad input: a clear error, for a run and for a thread."""
    async with Sessions(loop_of(StrictLLM())) as sessions:
        run = await sessions.start("t", "go")
        await all_of(sessions, run.run_id)
        for stream in (sessions.events(run.run_id, after=after), sessions.thread_events("t", after=after)):
            with pytest.raises(StoreError) as caught:
                await anext(stream)
            assert caught.value.code == "invalid"


async def test_a_place_past_the_end_waits_for_what_comes(store_url: str | None) -> None:
    """A client that knows more than the server (of a database that was put back) is not told it twice."""
    llm = GateLLM()
    async with Sessions(loop_of(llm), store_url) as sessions:
        await sessions.start("t", "go")
        async with asyncio.timeout(5):
            stream = sessions.thread_events("t", after=1)
            assert (await anext(stream)).seq == 2
        await stream.aclose()
        llm.gate.set()


async def test_a_message_taken_back_in_mid_text_takes_nothing_from_who_reads(store_url: str | None) -> None:
    """Q212: its two events come between two pieces of another run's text; every place can be resumed from."""
    llm = GateLLM("hello, world")
    async with Sessions(loop_of(llm), store_url, flush_seconds=60.0) as sessions:
        run = await sessions.start("t", "go")
        await llm.waiting.wait()
        client, places = Client(), list[str | None]()
        stream = sessions.shown_in("t")
        while not client.texts:
            client.take(await anext(stream))
        waiting = await sessions.start("t", "never mind")
        await sessions.cancel(waiting.run_id)
        llm.gate.set()
        while run.run_id not in client.over:
            client.take(await anext(stream))
            places.append(client.id)
        await stream.aclose()
        assert client.over == {run.run_id, waiting.run_id}
        assert list(client.texts.values()) == ["hello, world"]
        for place in places:
            if place is not None and "." in place:
                rest = sessions.shown_in("t", after=place)
                told = ""
                async for shown in rest:
                    told += shown.event.text if isinstance(shown.event, TextDelta) else ""
                    if shown.event.run_id == run.run_id and shown.type == "run_end":
                        break
                await rest.aclose()
                assert "hello, world"[: int(place.partition(".")[2])] + told == "hello, world"
