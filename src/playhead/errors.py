"""Every error that this package raises.

    PlayheadError
    ├── ConfigError              a setting is missing or wrong; the text names it
    ├── ToolError                a tool's own failure, told to the model
    │   └── FatalToolError       ends the run instead
    ├── StoreError               a store could not read or write
    ├── OutputError              a text does not hold the value that it was to hold
    ├── MediaError               a file or an engine; `code` says which of the causes
    └── LLMError                 a model call failed; `code` is stable
        ├── AuthError            401, 403: the key
        ├── RateLimitError       429: wait `retry_after`
        ├── QuotaError           429, 402: waiting will not help today
        ├── OverloadedError      5xx: the provider is busy or broken
        ├── ContextTooLongError  the history does not fit the model
        ├── ContentFilterError   the provider refused the content
        ├── LLMTimeoutError      no byte within the time allowed
        ├── LLMConnectionError   no connection, or lost before any content
        ├── BadRequestError      400, 422: the request itself
        ├── ModelNotFoundError   404: the model or the address
        └── ProtocolError        the provider sent what its own format forbids

Errors carry facts and no behaviour. A text says what was wrong and what to do; where a text is
fixed by a requirement, what to do is added as a note. No text holds a key or a provider's body.
"""

from collections.abc import Sequence
from typing import Any


class PlayheadError(Exception):
    """The root of them all."""

    code: str = "error"


class ConfigError(PlayheadError):
    """A setting is missing or wrong."""

    code = "config"


class ToolError(PlayheadError):
    """A tool's own failure. The model reads its text as the result of the call."""

    code = "tool"


class FatalToolError(ToolError):
    """A tool's failure that must end the run with `finish_reason "error"`."""

    code = "tool_fatal"


class StoreError(PlayheadError):
    """A store could not read or write. With `passing`, the same may work in a moment."""

    code = "store"
    passing = False


class OutputError(PlayheadError):
    """A text does not hold the value that it was to hold. Its text is written for the model."""

    code = "output_mismatch"


class MediaError(PlayheadError):
    """A media file or a speech engine failed.

    `code` is one of `not_found`, `empty`, `unreadable`, `no_audio`, `no_decodable_audio`,
    `unsupported`, `too_large`, `weights_missing`, `weights_damaged`, `needs_package`,
    `engine_failed`, `cancelled`, `disk_full` for an upload, or `media` for anything else.
    """

    code = "media"

    def __init__(self, message: str, *, code: str = "media") -> None:
        super().__init__(message)
        self.code = code


class LLMError(PlayheadError):
    """A model call failed before it gave a usable answer.

    Args:
        message: what went wrong and what to do, without secrets and without the provider's body.
        provider: the vendor's name, as configured.
        status: the HTTP status, where there was one.
        retry_after: seconds that the provider asked us to wait, if it did.
        repair: what the attempt loop may apply once: a change of the profile (a mapping) or a hint
            to the model (text).
        passing: whether it may go well the next time, at the same provider.

    `attempts` lists all that was tried, where several attempts failed.
    """

    code: str = "llm"

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        retry_after: float | None = None,
        repair: Any = None,
        passing: bool = True,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        self.repair = repair
        self.passing = passing
        self.attempts: Sequence[Any] = ()


class AuthError(LLMError):
    """The provider refused the key."""

    code = "auth"


class RateLimitError(LLMError):
    """Too many requests; wait `retry_after` seconds."""

    code = "rate_limit"


class QuotaError(LLMError):
    """The account has no quota or credit left."""

    code = "quota"


class OverloadedError(LLMError):
    """The provider is busy or broken (5xx)."""

    code = "overloaded"


class ContextTooLongError(LLMError):
    """The history does not fit the model's context."""

    code = "context_too_long"


class ContentFilterError(LLMError):
    """The provider refused the content."""

    code = "content_filter"


class LLMTimeoutError(LLMError):
    """No byte arrived within the time allowed."""

    code = "timeout"


class LLMConnectionError(LLMError):
    """No connection, or it was lost before any content."""

    code = "connection"


class BadRequestError(LLMError):
    """The provider rejected the request itself."""

    code = "bad_request"


class ModelNotFoundError(LLMError):
    """The provider knows no such model, or no such address."""

    code = "model_not_found"


class ProtocolError(LLMError):
    """The provider sent what its own format forbids."""

    code = "protocol"
