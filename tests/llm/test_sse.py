"""Bytes to events, however the bytes are cut. Wire cases A (Q001-Q013)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead import LLMRequest, UserMessage
from playhead.errors import ProtocolError
from playhead.llm import call, sse
from playhead.llm.openai_compatible import OpenAICompatible
from playhead.llm.sse import EventParser
from playhead.testing import FakeProvider, openai_sse


def parse(*pieces: bytes) -> list[tuple[str, bytes]]:
    parser = EventParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.finish()


def data(*pieces: bytes) -> list[bytes]:
    return [payload for _, payload in parse(*pieces)]


RECORDED = (
    b"\xef\xbb\xbf: OPENROUTER PROCESSING\n\n"
    b'data: {"choices":[{"delta":{"content":"caf\xc3\xa9 \xf0\x9f\x8e\xac"}}]}\r\n\r\n'
    b"event: ping\r\ndata: {}\r\n\r\n"
    b'id: 7\rdata: {"a":\rdata: 1}\r\r'
    b"data:\n\n"
    b"retry: 10\nevent: error\ndata:{}\n\n"
    b"data: [DONE]\n\n"
)


@given(st.lists(st.integers(0, len(RECORDED)), max_size=40))
def test_any_cut_of_a_stream_gives_the_same_events(cuts: list[int]) -> None:
    """Q001, Q005: the bytes may be cut anywhere, inside characters and line ends too."""
    borders = [0, *sorted(cuts), len(RECORDED)]
    pieces = [RECORDED[a:b] for a, b in pairwise(borders)]
    assert parse(*pieces) == parse(RECORDED)


def test_one_byte_at_a_time_gives_the_same_events() -> None:
    """Q001: the finest cut of all."""
    assert parse(*(bytes([byte]) for byte in RECORDED)) == parse(RECORDED)


def test_the_recorded_stream_reads_as_the_specification_says() -> None:
    """Q004, Q007, Q008, Q010, Q013: line ends, BOM, several data lines, comments, blank data, names."""
    assert parse(RECORDED) == [
        ("message", '{"choices":[{"delta":{"content":"café 🎬"}}]}'.encode()),
        ("ping", b"{}"),
        ("message", b'{"a":\n1}'),
        ("error", b"{}"),
        ("message", b"[DONE]"),
    ]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((b"data: A\r", b"\ndata: B\r\n\r\n"), [b"A\nB"]),
        ((b'id: 7\ndata: {"choices":[]}\n\n: ping\n\n',), [b'{"choices":[]}']),
        ((b": ping\n\n: ping\n\n",), []),
        ((b"data: last without a blank line\n",), [b"last without a blank line"]),
        ((b"data: last without a line end",), [b"last without a line end"]),
        ((b"data:no space\n\n",), [b"no space"]),
        ((b"data:  two spaces\n\n",), [b" two spaces"]),
        ((b"data\n\ndata: x\n\n",), [b"x"]),
        ((b"", b""), []),
    ],
)
def test_odd_streams_read_right(pieces: tuple[bytes, ...], expected: list[bytes]) -> None:
    """Q005, Q011, Q013: what servers and proxies are known to send."""
    assert data(*pieces) == expected


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hostile input: memory stays bounded, and the error says why."""
    monkeypatch.setattr(sse, "MAX_EVENT", 1000)
    parser = EventParser()
    for _ in range(9):
        assert parser.feed(b"data: " + b"x" * 100) == []
    with pytest.raises(ProtocolError, match="more than 1000 bytes"):
        parser.feed(b"data: " + b"x" * 100)


@pytest.mark.anyio
async def test_a_stream_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 2, bad input: a provider that streams for ever costs bounded memory, and the error says why."""
    monkeypatch.setattr(call, "MAX_STREAM", 10_000)
    async with FakeProvider(openai_sse(*["lorem ipsum"] * 200, finish_reason=None, cut="hang")) as provider:
        llm = OpenAICompatible("m", "key", f"{provider.url}/v1")
        with pytest.raises(ProtocolError, match="streamed more than 10000 bytes"):
            await llm.generate(LLMRequest([UserMessage("hi")]), lambda _: None)


def test_many_small_events_do_not_count_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is on one event, not on the stream."""
    monkeypatch.setattr(sse, "MAX_EVENT", 1000)
    parser = EventParser()
    assert sum(len(parser.feed(b"data: " + b"x" * 500 + b"\n\n")) for _ in range(50)) == 50
