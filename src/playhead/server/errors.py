"""Every error that leaves the server: `{error, code, path?}`, never a traceback, a key or a body."""

import logging
from collections.abc import Mapping
from typing import Literal, get_args

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from playhead.encode import error_text, mask, masked_traceback
from playhead.errors import ConfigError, LLMError, MediaError, PlayheadError, StoreError
from playhead.server.wire import ErrorBody, dump

logger = logging.getLogger("playhead")

PROVIDER_ERROR = "LLM provider error"

Code = Literal[
    # ours
    "invalid",
    "not_found",
    "method_not_allowed",
    "too_large",
    "range",
    "bad_host",
    "bad_origin",
    "forbidden",
    "too_many_requests",
    "unauthorized",
    "stopping",
    "conflict",
    "config",
    "store",
    "internal",
    # of a model call
    "auth",
    "bad_request",
    "connection",
    "content_filter",
    "context_too_long",
    "empty_answer",
    "llm",
    "model_not_found",
    "overloaded",
    "protocol",
    "quota",
    "rate_limit",
    "timeout",
    # of a media file or a speech engine
    "cancelled",
    "disk_full",
    "empty",
    "engine_failed",
    "media",
    "needs_package",
    "no_audio",
    "no_decodable_audio",
    "unreadable",
    "unsupported",
    "weights_damaged",
    "weights_missing",
]
CODES: tuple[str, ...] = get_args(Code)

_MEDIA_STATUS = {
    "not_found": 404,
    "empty": 400,
    "too_large": 413,
    "unreadable": 415,
    "unsupported": 415,
    "no_audio": 422,
    "no_decodable_audio": 422,
    "cancelled": 409,
    "needs_package": 503,
    "weights_missing": 503,
    "weights_damaged": 503,
    "disk_full": 507,
}
_STORE_STATUS = {"not_found": 404, "invalid": 400, "conflict": 409, "stopping": 503}
_HTTP_CODES: dict[int, tuple[Code, str]] = {
    400: ("invalid", "The request could not be read."),
    401: ("unauthorized", "The application does not know who asks."),
    403: ("forbidden", "The application does not allow this."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not answer that method."),
    413: ("too_large", "The body is too large."),
}


class ApiError(PlayheadError):
    """An answer other than 2xx. `path` names the place in the body that is at fault."""

    def __init__(
        self,
        status: int,
        code: Code,
        message: str,
        *,
        path: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.path = path
        self.headers = headers


def json_error(error: ApiError) -> Response:
    body = ErrorBody(error=str(error), code=error.code)
    if error.path is not None:
        body.path = error.path
    return Response(dump(body), error.status, error.headers, "application/json")


def api_error(error: Exception) -> ApiError:
    """Say any exception in the terms of this API. An unknown one is logged, and told as `internal`."""
    match error:
        case ApiError():
            return error
        case LLMError():
            return _provider_error(error)
        case ConfigError():
            return ApiError(502, "config", mask(str(error)))
        case MediaError():
            return ApiError(_MEDIA_STATUS.get(error.code, 500), known(error.code, "media"), error_text(error))
        case StoreError(code="not_found" | "invalid" | "conflict" | "stopping" as code):
            return ApiError(_STORE_STATUS[code], known(code, "store"), error_text(error))
        case StoreError():
            logger.error("A store failed: %s", error_text(error))
            status = 503 if error.passing else 500
            return ApiError(status, "store", "The store could not read or write. The server's log says why.")
        case HTTPException():
            said = _HTTP_CODES.get(error.status_code, ("invalid", "The request was refused."))
            return ApiError(error.status_code, *said, headers=error.headers)
        case ClientDisconnect():
            return ApiError(400, "invalid", "The connection closed before the body was complete.")
    log_unexpected(error)
    return ApiError(500, "internal", "Something went wrong here. The server's log says what.")


async def handle(request: Request, error: Exception) -> Response:
    """The exception handler of every route."""
    return json_error(api_error(error))


def log_unexpected(error: BaseException) -> None:
    """Log a bug with its traceback, masked: an error's text may quote a key."""
    logger.error("An unexpected error: %s", masked_traceback(error))


def known(code: str, otherwise: Code) -> Code:
    """The code itself if it is a listed one: codes are a promise, classes of others are not."""
    return code if code in CODES else otherwise  # type: ignore[return-value]  # narrowed by the list


def _provider_error(error: LLMError) -> ApiError:
    logger.warning("A model call failed (%s): %s", error.code, error_text(error))
    headers = {"Retry-After": str(max(1, round(error.retry_after)))} if error.retry_after else None
    return ApiError(502, known(error.code, "llm"), PROVIDER_ERROR, headers=headers)
