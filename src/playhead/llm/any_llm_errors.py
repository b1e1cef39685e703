"""What goes wrong in any-llm, in our words. Nothing of the provider's text is in theirs."""

from collections.abc import Mapping

from playhead.encode import mask
from playhead.errors import LLMConnectionError, LLMError, LLMTimeoutError, ProtocolError
from playhead.llm.call import error_for, retry_after

# By the SDK's class: the status it stands for where none was reported, and what it means beside one.
_MEANING: Mapping[str, tuple[int, str]] = {
    "AuthenticationError": (401, ""),
    "ContentFilterError": (400, "filter"),
    "ContextLengthExceededError": (400, "context"),
    "GatewayTimeoutError": (504, ""),
    "InsufficientFundsError": (402, "quota"),
    "InvalidRequestError": (400, ""),
    "ModelNotFoundError": (404, ""),
    "RateLimitError": (429, ""),
    "UnsupportedParameterError": (400, ""),
    "UpstreamProviderError": (502, ""),
}
_UNREADABLE = ("ValidationError", "JSONDecodeError", "AttributeError", "TypeError", "KeyError")


def map_error(error: Exception, provider: str) -> LLMError:
    """Return the error in our words. Nothing of the provider's text is in its own."""
    if isinstance(error, LLMError):
        error.provider = error.provider or provider
        return error
    if isinstance(error, TimeoutError):
        return LLMTimeoutError(f"{provider} sent nothing within the time allowed.", provider=provider)
    said = mask(str(getattr(error, "message", "") or error), 200)
    status, kind = getattr(error, "status_code", None), ""
    meaning = _MEANING.get(type(error).__name__)
    if meaning is not None:
        usual, kind = meaning
        # Some say 400 for a bad key; a class is otherwise a guess from words where a status is a fact.
        bad_key = usual == 401 and "api key" in said.lower()
        status = usual if status is None or bad_key else status
    if status is None:
        return _unreported(error, provider, said)
    if getattr(error, "code", None) == "insufficient_quota":
        kind = "quota"
    response = getattr(getattr(error, "original_exception", None), "response", None)
    return error_for(provider, status, kind, retry_after(getattr(response, "headers", {})), said)


def _unreported(error: Exception, provider: str, said: str) -> LLMError:
    """The error of a failure that no status tells of, by the types of its causes."""
    names = " ".join(type(cause).__name__ for cause in _causes(error))
    if any(name in names for name in _UNREADABLE):
        text = f"{provider} sent what any-llm could not read ({type(error).__name__})."
        return ProtocolError(text, provider=provider)
    if "Timeout" in names:
        return LLMTimeoutError(f"{provider} sent nothing within the time allowed.", provider=provider)
    if any(word in names for word in ("Connect", "RemoteProtocol", "ReadError", "WriteError", "OSError")):
        text = f"The connection to {provider} could not be made, or broke. Is the base URL right?"
        return LLMConnectionError(text, provider=provider)
    return error_for(provider, 500, "", None, said)


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = getattr(error, "original_exception", None) or error.__cause__ or error.__context__
    return causes
