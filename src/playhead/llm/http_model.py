"""What the adapters over HTTP share."""

from collections.abc import Coroutine
from typing import Any, Protocol

import msgspec

from playhead.events import EmitDelta
from playhead.llm.call import Dialect, StreamReader, call
from playhead.types import LLMRequest, LLMResult


class WholeReader(StreamReader, Protocol):
    """A reader of streams that reads a whole response as well."""

    def take_body(self, body: bytes) -> None:
        """Take a whole response. Raises `LLMError`."""
        ...


class HttpDialect(Dialect, Protocol):
    """A dialect whose reader reads both ways."""

    def reader(self, request: LLMRequest, emit: EmitDelta | None) -> WholeReader: ...


class HttpModel:
    """The one call, and a whole response read by the reader of streams: one place for both."""

    def generate(
        self: HttpDialect, request: LLMRequest, emit: EmitDelta | None = None
    ) -> Coroutine[Any, Any, LLMResult]:
        """One call of the model. Raises `LLMError`; never retries."""
        return call(self, request, emit)

    def parse_response(
        self: HttpDialect, request: LLMRequest, body: bytes, emit: EmitDelta | None = None
    ) -> LLMResult:
        """Read a whole response. Raises `LLMError`."""
        reader = self.reader(request, emit)
        reader.take_body(body)
        return reader.result()


def told_error(body: bytes) -> Any:
    """Return what a refusal holds under `error`, or the whole document, or None for what is no JSON."""
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return None
    return raw.get("error", raw) if isinstance(raw, dict) else None
