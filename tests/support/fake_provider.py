"""The fake provider, where it used to be: it lives in `playhead.testing` now."""

from playhead.testing import (
    FakeProvider,
    Reply,
    Request,
    gemini_calls,
    gemini_sse,
    gemini_text,
    hang,
    openai_calls,
    openai_sse,
    openai_text,
    reply_bytes,
    reply_json,
    split,
    sse,
    stream,
)

__all__ = [
    "FakeProvider",
    "Reply",
    "Request",
    "gemini_calls",
    "gemini_sse",
    "gemini_text",
    "hang",
    "openai_calls",
    "openai_sse",
    "openai_text",
    "reply_bytes",
    "reply_json",
    "split",
    "sse",
    "stream",
]
