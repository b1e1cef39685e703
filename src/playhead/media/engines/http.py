"""Speech recognition by an OpenAI-compatible endpoint: `POST {base_url}/audio/transcriptions`.

Servers differ in what they tell. It asks for words and segments first and steps down to segments and
to plain text when it is refused; with text alone the window itself is the segment.
"""

import asyncio
import io
import secrets
import wave
from typing import Any

import msgspec

from playhead import http
from playhead.errors import ConfigError, LLMConnectionError, LLMError, LLMTimeoutError, MediaError
from playhead.media.types import SAMPLE_RATE, EngineInfo, EngineStatus, OnProgress, Samples, Segment, Word

_TIMEOUT = 120.0
_TRIES = 4
_WAIT = 1.0
_LONGEST_WAIT = 30.0
_LIMIT = 8 * 1024 * 1024
_BUSY = (408, 429, 500, 502, 503, 504)
# What to ask for, best first: https://platform.openai.com/docs/api-reference/audio/createTranscription
_GRANULARITY = "timestamp_granularities[]"
_FORMATS = (
    [("response_format", "verbose_json"), (_GRANULARITY, "word"), (_GRANULARITY, "segment")],
    [("response_format", "verbose_json")],
    [("response_format", "json")],
)


class _Word(msgspec.Struct):
    word: str
    start: float
    end: float


class _Segment(msgspec.Struct):
    start: float
    end: float
    text: str
    avg_logprob: float | None = None
    no_speech_prob: float | None = None
    words: list[_Word] | None = None


class _Answer(msgspec.Struct):
    text: str | None = None
    language: str | None = None
    segments: list[_Segment] | None = None
    words: list[_Word] | None = None


class HttpEngine:
    """A transcription endpoint.

    Args:
        base_url: up to and without `/audio/transcriptions`, such as `http://host/v1`.
        model: the model's name there.
        api_key: sent as a bearer token, and nowhere else.
        wait: seconds before the second try of a busy endpoint; each further wait is twice as long.
    """

    def __init__(self, *, base_url: str, model: str, api_key: str | None = None, wait: float = _WAIT) -> None:
        self.info = EngineInfo(id="http", model=model, offline=False)
        self._url = f"{base_url.rstrip('/')}/audio/transcriptions"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._format = 0
        self._wait = wait
        self._runner = asyncio.Runner()

    def status(self) -> EngineStatus:
        return "ready"

    def prepare(self, on_progress: OnProgress) -> None:
        """Nothing to load."""

    def transcribe(
        self, samples: Samples, *, language: str | None = None, prompt: str | None = None
    ) -> list[Segment]:
        """Recognise one window. A busy endpoint is tried again a few times.

        Raises `MediaError` `engine_failed`; its text holds neither the key nor the endpoint's words.
        """
        fields = [("model", self.info.model)]
        fields += [("language", language)] if language else []
        fields += [("prompt", prompt)] if prompt else []
        sound = _wav(samples)
        answer = self._runner.run(self._asked(fields, sound))
        return _segments(answer, len(samples) / SAMPLE_RATE)

    def close(self) -> None:
        """Let the connections go."""
        self._runner.close()

    async def _asked(self, fields: list[tuple[str, str]], sound: bytes) -> _Answer:
        """Ask, with less where more is refused."""
        while True:
            status, body = await self._sent([*fields, *_FORMATS[self._format]], sound)
            if status == 200:
                return _read(body)
            if status not in (400, 415, 422) or self._format + 1 == len(_FORMATS):
                raise MediaError(_refusal(status, http.where(self._url)), code="engine_failed")
            self._format += 1

    async def _sent(self, fields: list[tuple[str, str]], sound: bytes) -> tuple[int, bytes]:
        content_type, body = _form(fields, sound)
        request = http.HttpRequest(
            self._url, {**self._headers, "Content-Type": content_type}, body, _TIMEOUT, 2 * _TIMEOUT
        )
        wait = self._wait
        for attempt in range(_TRIES):
            try:
                response = await http.post(request)
                try:
                    status, data = response.status, await response.read(_LIMIT)
                    asked = _seconds(response.headers.get("Retry-After"))
                finally:
                    response.close()
                if status not in _BUSY or attempt + 1 == _TRIES:
                    return status, data
            except (LLMConnectionError, LLMTimeoutError) as error:
                asked = None
                if attempt + 1 == _TRIES:
                    raise MediaError(str(error), code="engine_failed") from None
            except (LLMError, ConfigError) as error:
                raise MediaError(str(error), code="engine_failed") from None
            await asyncio.sleep(min(_LONGEST_WAIT, asked or wait))
            wait *= 2
        raise AssertionError("the last try returns or raises")


def _wav(samples: Samples) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SAMPLE_RATE)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return out.getvalue()


def _form(fields: list[tuple[str, str]], sound: bytes) -> tuple[str, bytes]:
    """A multipart form (RFC 7578) of the fields and the sound."""
    boundary = secrets.token_hex(16)
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields]
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="window.wav"\r\n'
        "Content-Type: audio/wav\r\n\r\n"
    )
    body = "".join([*parts, head]).encode() + sound + f"\r\n--{boundary}--\r\n".encode()
    return f"multipart/form-data; boundary={boundary}", body


def _read(body: bytes) -> _Answer:
    try:
        answer = msgspec.json.decode(body, type=_Answer, strict=False)
    except ValueError:
        # Some servers fill the fields of segments with anything; the text is what matters.
        answer = _only_text(body)
    if answer.text is None and answer.segments is None:
        raise MediaError(
            "The speech service answered with something that is no transcription.", code="engine_failed"
        )
    return answer


def _only_text(body: bytes) -> _Answer:
    try:
        plain: Any = msgspec.json.decode(body)
        return _Answer(text=str(plain["text"]))
    except (ValueError, KeyError, TypeError):
        return _Answer()


def _refusal(status: int, host: str) -> str:
    reason = {
        401: "refused the key: check the key of the speech endpoint",
        403: "refused the key: check the key of the speech endpoint",
        404: "has nothing under this address: check the base URL and the model's name",
        413: "takes no sound of this size",
        429: "takes no more requests now: try again later",
    }.get(status, "failed")
    return f"The speech service at {host} {reason} (HTTP {status})."


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after and retry_after.strip().isdigit() else None


def _segments(answer: _Answer, length: float) -> list[Segment]:
    """The segments of an answer; the whole window is one when it tells of none."""
    text = answer.text or ""
    if not text.strip() and not answer.segments:
        return []
    words = list(answer.words or ())
    found = []
    for raw in answer.segments or [_Segment(0.0, length, text)]:
        own = raw.words
        if own is None:
            own = [word for word in words if word.start < raw.end - 0.01]
            words = words[len(own) :]
        found.append(
            Segment(
                start=raw.start,
                end=raw.end,
                text=raw.text,
                words=_worded(raw.text, own),
                language=_code(answer.language),
                avg_logprob=raw.avg_logprob,
                no_speech_prob=raw.no_speech_prob,
            )
        )
    return found


def _worded(text: str, words: list[_Word]) -> list[Word] | None:
    """Give each word its piece of the text: endpoints tell words without spaces and punctuation.

    None when the words are not those of the text.
    """
    found: list[Word] = []
    at = 0
    lower = text.lower()
    for i, word in enumerate(words):
        core = word.word.strip().lower()
        place = lower.find(core, at)
        if not core or place < 0:
            return None
        end = place + len(core)
        after = lower.find(words[i + 1].word.strip().lower(), end) if i + 1 < len(words) else len(text)
        stop = end + len(text[end : max(after, end)].rstrip())
        found.append(Word(word.start, word.end, text[at:stop]))
        at = stop
    return found or None


# verbose_json names the language in English; the codes are those of ISO 639-1.
_NAMES = {
    "arabic": "ar", "bulgarian": "bg", "catalan": "ca", "chinese": "zh", "croatian": "hr", "czech": "cs",
    "danish": "da", "dutch": "nl", "english": "en", "estonian": "et", "finnish": "fi", "french": "fr",
    "german": "de", "greek": "el", "hebrew": "he", "hindi": "hi", "hungarian": "hu", "indonesian": "id",
    "italian": "it", "japanese": "ja", "korean": "ko", "latvian": "lv", "lithuanian": "lt", "malay": "ms",
    "norwegian": "no", "persian": "fa", "polish": "pl", "portuguese": "pt", "romanian": "ro",
    "russian": "ru", "serbian": "sr", "slovak": "sk", "slovenian": "sl", "spanish": "es", "swedish": "sv",
    "tamil": "ta", "thai": "th", "turkish": "tr", "ukrainian": "uk", "urdu": "ur", "vietnamese": "vi",
}  # fmt: skip


def _code(language: str | None) -> str | None:
    name = (language or "").strip().lower()
    return _NAMES.get(name, name) or None
