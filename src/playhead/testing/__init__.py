"""What tests of an agent stand on: models by script, a provider in raw bytes, recordings, no network.

    from playhead.testing import FakeProvider, ScriptedLLM, openai_text

Nothing here needs a test framework. See docs/testing.md.
"""

from playhead.testing.anthropic import anthropic_calls, anthropic_sse, anthropic_text
from playhead.testing.gemini import gemini_calls, gemini_sse, gemini_text
from playhead.testing.model import Answer, ScriptedLLM
from playhead.testing.network import NetworkForbiddenError, no_network
from playhead.testing.openai import openai_calls, openai_sse, openai_text
from playhead.testing.provider import FakeProvider, Request
from playhead.testing.recorder import Recorder, record, replay
from playhead.testing.replies import (
    Reply,
    hang,
    reply_bytes,
    reply_html,
    reply_json,
    split,
    sse,
    stream,
)
from playhead.testing.responses import responses_calls, responses_sse, responses_text

__all__ = [
    "Answer",
    "FakeProvider",
    "NetworkForbiddenError",
    "Recorder",
    "Reply",
    "Request",
    "ScriptedLLM",
    "anthropic_calls",
    "anthropic_sse",
    "anthropic_text",
    "gemini_calls",
    "gemini_sse",
    "gemini_text",
    "hang",
    "no_network",
    "openai_calls",
    "openai_sse",
    "openai_text",
    "record",
    "replay",
    "reply_bytes",
    "reply_html",
    "reply_json",
    "responses_calls",
    "responses_sse",
    "responses_text",
    "split",
    "sse",
    "stream",
]
