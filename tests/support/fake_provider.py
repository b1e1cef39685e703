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
from playhead.testing.anthropic import anthropic_calls, anthropic_sse, anthropic_text

__all__ = [
    "FakeProvider",
    "Reply",
    "Request",
    "anthropic_calls",
    "anthropic_sse",
    "anthropic_text",
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
