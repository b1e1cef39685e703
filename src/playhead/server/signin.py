"""`/sign-in` and `/sign-out`: how a browser comes to its cookie, and how it leaves it."""

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from playhead.server.errors import ApiError
from playhead.server.limits import address_of_client
from playhead.server.parts import STATIC, Parts, parts_of

# To the page, wherever the app is mounted. A used link leads there too: who has the cookie is signed in,
# and who has not is told there what to do.
_TO_THE_PAGE = {"Location": "./", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


async def sign_in(request: Request) -> Response:
    """Take the code of a sign-in link, once, and open the page.

    The cookie that it gives is for this browser; the address of the link is not kept in its history.
    """
    parts = parts_of(request)
    response = Response(status_code=303, headers=_TO_THE_PAGE)
    if request.method == "HEAD":  # a look at the link, which must not use it up
        return response
    value = parts.access.redeem(request.query_params.get("code", ""))
    if value is None:
        parts.refusals.take(address_of_client(request.scope))
    else:
        _set_cookie(request, response, parts, value, int(parts.access.session_seconds))
    return response


async def sign_out(request: Request) -> Response:
    """Have this browser forget that it is signed in."""
    response = Response(status_code=204, headers={"Cache-Control": "no-store"})
    _set_cookie(request, response, parts_of(request), "", 0)
    return response


async def instead(request: Request) -> Response | None:
    """Return what is shown in place of a page to who is not signed in; None to who is.

    Raises `ApiError` 401 for a program, which has no use of a page, and 429.
    """
    try:
        await parts_of(request).identity(request)
    except ApiError as error:
        if error.status != 401 or "text/html" not in request.headers.get("accept", ""):
            raise
        headers = {**(error.headers or {}), "Cache-Control": "no-store"}
        return FileResponse(STATIC / "sign-in.html", 401, headers)
    return None


def _set_cookie(request: Request, response: Response, parts: Parts, value: str, max_age: int) -> None:
    response.set_cookie(
        parts.access.cookie_name,
        value,
        max_age=max_age,
        path=request.scope.get("root_path") or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
