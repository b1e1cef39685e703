"""Errors of the chat completions API: refusals, and those within a response of status 200."""

import json
from typing import Any

from playhead.errors import LLMError
from playhead.llm.call import error_for
from playhead.types import JsonObject

KEY = "openai-compatible"
"""The dialect, under which opaque data and wire bytes are kept."""

# Where an error inside a stream has no status of its own.
_BY_WORD = (
    (429, ("rate_limit", "rate limit", "too many requests")),
    (401, ("authentication", "invalid_api_key")),
    (400, ("invalid_request", "badrequest")),
)


def error_in(error: Any) -> LLMError:
    """Return the error that came inside a response of status 200."""
    if not isinstance(error, dict | str):
        error = str(error)
    code = str(error.get("code") if isinstance(error, dict) else "")
    if len(code) == 3 and code.isdecimal() and code >= "400":
        return error_of(int(code), error, None)
    what = f"{code} {error.get('type')}".lower() if isinstance(error, dict) else ""
    status = next((status for status, words in _BY_WORD if any(word in what for word in words)), 500)
    return error_of(status, error, None)


def other_error(data: bytes, sure: bool = False) -> JsonObject | None:
    """Return the error of a chunk that is one itself, as vLLM sends it: `{"object":"error",...}`.

    `sure`: the event is called `error`, so any object is one.
    """
    try:
        raw = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    return raw if sure or "error" in (raw.get("object"), raw.get("type")) else None


def error_of(
    status: int, error: JsonObject | str | None, retry_after: float | None, provider: str = KEY
) -> LLMError:
    """Return the error of a refusal."""
    said = error if isinstance(error, str) else str((error or {}).get("message") or "")
    code = "" if not isinstance(error, dict) else f"{error.get('code')} {error.get('type')}"
    text = f"{code} {said}".lower()
    return error_for(provider, status, _kind(text), retry_after, said)


def _kind(text: str) -> str:
    if "insufficient_quota" in text or "billing" in text:
        return "quota"
    if any(word in text for word in ("context_length", "context length", "maximum context", "context size")):
        return "context"
    if any(word in text for word in ("content_filter", "content_policy", "invalid_prompt")):
        return "filter"
    return ""
