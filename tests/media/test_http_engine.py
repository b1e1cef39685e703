"""Speech by an OpenAI-compatible endpoint, whatever it can and cannot tell."""

import asyncio
import io
import wave
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

import numpy as np
import pytest

from playhead.errors import MediaError
from playhead.media.engines.http import HttpEngine
from playhead.media.types import SAMPLE_RATE, Segment
from playhead.testing import FakeProvider, Reply, Request, reply_bytes, reply_json

pytestmark = pytest.mark.anyio

KEY = "sk-canary-1234567890"
SOUND = (0.5 * np.sin(np.arange(3 * SAMPLE_RATE) / 10)).astype(np.float32)
VERBOSE = {
    "task": "transcribe",
    "language": "english",
    "duration": 3.0,
    "text": "Ask not, what your country can do.",
    "segments": [
        {"id": 0, "start": 0.0, "end": 1.0, "text": " Ask not,", "avg_logprob": -0.2, "no_speech_prob": 0.01},
        {"id": 1, "start": 1.0, "end": 3.0, "text": " what your country can do.", "tokens": [1, 2]},
    ],
    "words": [
        {"word": "Ask", "start": 0.1, "end": 0.4},
        {"word": "not", "start": 0.5, "end": 0.9},
        {"word": "what", "start": 1.1, "end": 1.3},
        {"word": "your", "start": 1.3, "end": 1.5},
        {"word": "country", "start": 1.5, "end": 2.0},
        {"word": "can", "start": 2.0, "end": 2.4},
        {"word": "do", "start": 2.4, "end": 2.9},
    ],
}


class Endpoint:
    """An engine at a provider of our own; the engine blocks, so it works in a thread."""

    def __init__(self, provider: FakeProvider, path: str = "/v1") -> None:
        self.engine = HttpEngine(base_url=provider.url + path, model="whisper-1", api_key=KEY, wait=0.01)

    async def transcribe(self, **more: str) -> list[Segment]:
        return await asyncio.to_thread(self.engine.transcribe, SOUND, **more)

    async def __aenter__(self) -> "Endpoint":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self.engine.close)


def fields(request: Request) -> list[tuple[str, Any]]:
    """The fields of a form, as a mail parser reads them: not our own reading of our own writing."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    message: Any = BytesParser(policy=HTTP).parsebytes(head + request.body)
    return [
        (part.get_param("name", header="content-disposition"), part.get_payload(decode=True))
        for part in message.iter_parts()
    ]


async def test_a_window_is_sent_as_a_form_and_words_come_back() -> None:
    """R32: POST {base}/audio/transcriptions, the key in its header alone, words with their punctuation."""
    async with FakeProvider(reply_json(VERBOSE)) as provider:
        async with Endpoint(provider) as endpoint:
            first, second = await endpoint.transcribe(language="en", prompt="Kennedy\r\n--x")
        [request] = provider.requests
    assert (request.method, request.path) == ("POST", "/v1/audio/transcriptions")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert KEY.encode() not in request.body
    sent = fields(request)
    assert [(name, value) for name, value in sent if name != "file"] == [
        ("model", b"whisper-1"),
        ("language", b"en"),
        ("prompt", b"Kennedy\r\n--x"),
        ("response_format", b"verbose_json"),
        ("timestamp_granularities[]", b"word"),
        ("timestamp_granularities[]", b"segment"),
    ]
    with wave.open(io.BytesIO(dict(sent)["file"])) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (SAMPLE_RATE, 1, 2)
        assert sound.getnframes() == len(SOUND)
    assert (first.text, first.start, first.end, first.language) == (" Ask not,", 0.0, 1.0, "en")
    assert [word.text for word in first.words or ()] == [" Ask", " not,"]
    assert "".join(word.text for word in second.words or ()) == second.text
    assert (second.words or ())[-1].end == 2.9
    assert first.avg_logprob == -0.2


async def test_it_steps_down_to_what_the_endpoint_can_do() -> None:
    """R32: refused words are asked for once, not for each window."""
    refused = reply_json({"error": {"message": "timestamp_granularities is not supported"}}, 400)
    text = reply_json({"text": "Ask not."})
    async with FakeProvider(refused, refused, text, text) as provider:
        async with Endpoint(provider) as endpoint:
            [segment] = await endpoint.transcribe()
            await endpoint.transcribe()
        asked = [dict(fields(request))["response_format"] for request in provider.requests]
    assert asked == [b"verbose_json", b"verbose_json", b"json", b"json"]
    assert (segment.text, segment.start, segment.end, segment.words) == ("Ask not.", 0.0, 3.0, None)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"text": "Ask not.", "segments": []}, [(0.0, 3.0, "Ask not.", None)]),
        ({"text": "Ask not.", "segments": None, "words": None}, [(0.0, 3.0, "Ask not.", None)]),
        ({"text": "Hi.", "segments": [{"start": "0.5", "end": 1, "text": "Hi."}]}, [(0.5, 1.0, "Hi.", None)]),
        ({"text": "Hi.", "segments": [{"id": "no times"}]}, [(0.0, 3.0, "Hi.", None)]),
        (
            {"text": "Hi you.", "words": [{"word": "bye", "start": 0, "end": 1}]},
            [(0.0, 3.0, "Hi you.", None)],
        ),
        ({"text": "  "}, []),
        ({"text": "", "segments": []}, []),
    ],
    ids=["no segments", "null", "times as text", "segments without times", "other words", "blank", "nothing"],
)
async def test_a_poor_answer_is_still_used(answer: dict[str, Any], expected: list[tuple[Any, ...]]) -> None:
    """R32: with text alone the window itself is the segment."""
    async with FakeProvider(reply_json(answer)) as provider, Endpoint(provider) as endpoint:
        found = await endpoint.transcribe()
    assert [(s.start, s.end, s.text, s.words) for s in found] == expected


@pytest.mark.parametrize(
    ("status", "text"),
    [(401, "refused the key"), (404, "base URL"), (413, "no sound of this size"), (418, "HTTP 418")],
)
async def test_a_refusal_is_told_without_the_endpoints_words(status: int, text: str) -> None:
    """R32: engine failure is an error of its own; nothing leaks a key or a provider's body."""
    body = {"error": {"message": f"secret words about {KEY}"}}
    async with FakeProvider(reply_json(body, status)) as provider, Endpoint(provider) as endpoint:
        with pytest.raises(MediaError, match=text) as caught:
            await endpoint.transcribe()
    assert caught.value.code == "engine_failed"
    assert "secret" not in str(caught.value)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "busy",
    [
        reply_json({}, 503),
        reply_json({}, 429, {"Retry-After": "0"}),
        reply_bytes(end="rst"),
        reply_bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
    ],
    ids=["503", "429", "reset", "cut"],
)
async def test_a_busy_endpoint_is_tried_again(busy: Reply) -> None:
    """R32: one bad minute must not lose an hour of work."""
    provider = FakeProvider(busy, busy, reply_json({"text": "Ask not."}))
    async with provider, Endpoint(provider) as endpoint:
        [segment] = await endpoint.transcribe()
    assert segment.text == "Ask not."


async def test_it_does_not_try_for_ever() -> None:
    """R32: an endpoint that stays down is an engine failure."""
    async with FakeProvider(default=reply_json({}, 503)) as provider:
        async with Endpoint(provider) as endpoint:
            with pytest.raises(MediaError, match="HTTP 503"):
                await endpoint.transcribe()
        assert len(provider.requests) == 4


@pytest.mark.parametrize(
    "body", [b"<html>hello</html>", b"[]", b'{"answer": 1}', b"\xff\xfe", b'"text"', b""]
)
async def test_nonsense_is_an_engine_failure(body: bytes) -> None:
    """R32: a proxy's page is no transcript."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with FakeProvider(default=reply_bytes(head + body)) as provider, Endpoint(provider) as endpoint:
        with pytest.raises(MediaError) as caught:
            await endpoint.transcribe()
    assert caught.value.code == "engine_failed"


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    """R32: keys stay with the address they were given for."""
    head = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:9/v1\r\nContent-Length: 0\r\n\r\n"
    async with FakeProvider(reply_bytes(head)) as provider, Endpoint(provider) as endpoint:
        with pytest.raises(MediaError, match="HTTP 307"):
            await endpoint.transcribe()


def test_a_key_does_not_show(capsys: pytest.CaptureFixture[str]) -> None:
    """R32: not in a description of the engine either."""
    from msgspec.structs import asdict

    from playhead.media.service import HttpSpeech
    from playhead.media.types import EngineSpec

    http = HttpSpeech("http://127.0.0.1/v1", KEY)
    assert KEY not in repr(http)
    assert KEY not in repr(EngineSpec("http", asdict(http)))
