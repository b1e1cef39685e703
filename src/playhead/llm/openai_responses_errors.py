"""What the Responses API refuses, before and within a response of status 200."""

from playhead.errors import LLMError
from playhead.llm.openai_errors import error_of
from playhead.types import JsonObject

KEY = "openai-responses"
"""The dialect, under which opaque data and wire bytes are kept."""

# https://platform.openai.com/docs/api-reference/responses/object (error.code); `too_many_requests` is
# what openai/openai-dotnet#881 saw. Every other word is the server's own trouble.
_STATUS = {
    "authentication_error": 401,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "invalid_api_key": 401,
    "invalid_encrypted_content": 400,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "rate_limit_exceeded": 429,
    "too_many_requests": 429,
}
# What the adapter may leave out from then on: reasoning that this server cannot read (openai/codex#8119,
# vercel/ai#7543, continuedev/continue#8933), the wish for it where the model makes none
# (NousResearch/hermes-agent#24234), a schema for the answer, and the temperature, which reasoning
# models do not take.
_REPAIRS: tuple[tuple[str, JsonObject], ...] = (
    ("invalid_encrypted_content", {"send_reasoning": False}),
    ("could not be verified", {"send_reasoning": False}),
    ("items are not persisted", {"send_reasoning": False}),
    ("required following item", {"send_reasoning": False}),
    ("encrypted content is not supported", {"ask_reasoning": False}),
    ("reasoning.encrypted_content", {"ask_reasoning": False}),
    ("'include'", {"ask_reasoning": False}),
    ("text.format", {"native_output": False}),
    ("temperature", {"send_temperature": False}),
)


def error_in(
    error: JsonObject | str | None, code: str | int | None = None, message: str | None = None
) -> LLMError:
    """Return the error that came inside a response.

    The documentation has `code` and `message` in the event itself; the API sends them in its field
    `error` (vercel/ai#20179).
    """
    nested = error if isinstance(error, dict) else {}
    said = error if isinstance(error, str) else nested.get("message") or message or ""
    word, kind = str(nested.get("code") or code), str(nested.get("type"))
    status = _STATUS.get(word) or _STATUS.get(kind)
    if status is None:
        status = int(word) if word.isdigit() else 400 if "image" in word else 500
    return refusal(status, {"code": word, "type": kind, "message": said}, None)


def refusal(status: int, error: JsonObject | str | None, retry_after: float | None) -> LLMError:
    """Return the error of a refusal; its text holds nothing of the provider's."""
    mapped = error_of(status, error, retry_after, KEY)
    if mapped.code == "bad_request":
        text = str(error).lower()
        mapped.repair = next((change for words, change in _REPAIRS if words in text), None)
    return mapped
