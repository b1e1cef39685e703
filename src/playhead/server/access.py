"""Who may ask: an access token for programs, a signed cookie for the page, or the application's own check.

With a token, a program sends it as `Authorization: Bearer ...`. A browser gets a cookie in its place, by
a sign-in link that works once and soon expires: the token itself is in no URL, no page and no cookie.
All of it is signed with the token, so that nothing has to be stored, and a new token ends all that the
old one opened.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from starlette.requests import Request

from playhead.errors import ConfigError
from playhead.server.errors import ApiError

LINK_SECONDS = 600.0
_SHORTEST = 16
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
HOW_TO_MAKE = "python3 -c 'import secrets; print(secrets.token_urlsafe(32))'"


class Identity(msgspec.Struct, frozen=True):
    """Who asks: of which tenant, and which of its users. What is another's is unknown to them.

    Without a user, all of a tenant share its threads and media; with neither, all who may ask do.
    Raises `ConfigError` for an empty name, which is more likely a mistake than somebody.
    """

    tenant: str | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        for name in ("tenant", "user"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value):
                raise ConfigError(f"Identity: {name} is {value!r}; it must be a text, or None.")

    @property
    def scope(self) -> str | None:
        """The tenant as `Sessions` and `MediaLibrary` know it: one name of the two, never that of others."""
        if self.user is None:
            return None if self.tenant is None else _escaped(self.tenant)
        return f"{_escaped(self.tenant or '')}/{_escaped(self.user)}"


Identify = Callable[[Request], Awaitable[Identity | None]]
"""The application's own authentication: who sends a request, or None for nobody that it knows."""


class Access:
    """What decides who may ask. Without a token and a hook, everybody may.

    Args:
        token: the access token; a text of 16 or more visible characters of ASCII.
        identify: the application's own authentication, in place of a token.
        session_seconds: for how long a browser stays signed in.
        clock: seconds since 1970.

    Raises `ConfigError` for a token that is none, or both of them.
    """

    def __init__(
        self,
        token: str | None = None,
        identify: Identify | None = None,
        *,
        session_seconds: float = 14 * 86_400.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if token is not None:
            check_token(token)
            if identify is not None:
                raise ConfigError("ServerOptions: give either a token or identify, not both.")
        self.token = token
        self.identify = identify
        self.session_seconds = session_seconds
        self._clock = clock
        self._signer = None if token is None else _Signer(token)
        self._used: dict[str, float] = {}

    @property
    def required(self) -> bool:
        """Whether anybody has to say who they are."""
        return self.token is not None or self.identify is not None

    async def identity(self, request: Request) -> Identity:
        """Return who sends a request. Raises `ApiError` 401, and 403 for a page that is not ours."""
        if self.identify is not None:
            _check_site(request, self.required)
            found = await self.identify(request)
            if found is None:
                raise unauthorized("Sign in to the application first; it does not know who asks.")
            if not isinstance(found, Identity):
                raise TypeError(
                    f"identify returned {type(found).__name__}; it must return an Identity or None"
                )
            return found
        if self._signer is None:
            return Identity()
        token = _bearer(request)
        if token is not None:
            # Whoever names a token is judged by it alone: a wrong one is not made good by a cookie.
            if self._signer.is_token(token):
                return Identity()
            raise unauthorized("This is not the access token of this server.")
        if self.signed_in(request.cookies):
            _check_site(request, self.required)
            return Identity()
        raise unauthorized(
            "This server asks for its access token: send it as `Authorization: Bearer ...`. For a browser,"
            " run `playhead link` where the server runs, and open what it prints."
        )

    def link_code(self) -> str:
        """Return the code of a new sign-in link. Raises `ConfigError` without a token."""
        return self._sign("code", LINK_SECONDS)

    def redeem(self, code: str) -> str | None:
        """Take the code of a link, once, and return the cookie's value; None if it is used, old or none."""
        now = self._clock()
        if self._signer is None or not self._signer.holds("code", code, now):
            return None
        # Only codes that are ours come this far, and each is forgotten when it has expired.
        self._used = {used: until for used, until in self._used.items() if until >= now}
        if code in self._used:
            return None
        self._used[code] = now + LINK_SECONDS
        return self._sign("cookie", self.session_seconds)

    def signed_in(self, cookies: Mapping[str, str]) -> bool:
        """Whether a valid cookie of ours is among these."""
        signer = self._signer
        return signer is not None and signer.holds("cookie", cookies.get(self.cookie_name, ""), self._clock())

    @property
    def cookie_name(self) -> str:
        """Differs between tokens: browsers share cookies among all the ports of a host."""
        return "playhead" if self._signer is None else f"playhead_{self._signer.name}"

    def _sign(self, purpose: str, lasts: float) -> str:
        if self._signer is None:
            raise ConfigError("There is no access token to sign in with. Set PLAYHEAD_TOKEN.")
        return self._signer.sign(purpose, int(self._clock() + lasts))


class _Signer:
    """`<expires>.<nonce>.<signature>`, made with a key that only who has the token can make."""

    def __init__(self, token: str) -> None:
        self._token = hashlib.sha256(token.encode()).digest()
        self._key = hmac.digest(token.encode(), b"playhead access", "sha256")
        self.name = hmac.digest(self._key, b"name", "sha256").hex()[:8]

    def is_token(self, given: str) -> bool:
        # Of equal length whatever was sent, so that the comparison tells nothing of it.
        return hmac.compare_digest(hashlib.sha256(given.encode(errors="replace")).digest(), self._token)

    def sign(self, purpose: str, expires: int) -> str:
        said = f"{expires}.{secrets.token_urlsafe(12)}"
        return f"{said}.{self._signature(purpose, said)}"

    def holds(self, purpose: str, value: str, now: float) -> bool:
        said, _, signature = value.rpartition(".")
        right = self._signature(purpose, said)
        if not hmac.compare_digest(signature.encode(errors="replace"), right.encode()):
            return False
        return int(said.partition(".")[0]) > now

    def _signature(self, purpose: str, said: str) -> str:
        digest = hmac.digest(self._key, f"{purpose}:{said}".encode(errors="replace"), "sha256")
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def check_token(token: str) -> None:
    """Raise `ConfigError` for a token that a header cannot carry, or that is soon guessed."""
    if len(token) < _SHORTEST:
        what = f"has {len(token)} characters; it needs {_SHORTEST} or more"
    elif not all("!" <= character <= "~" for character in token):
        what = "holds a space, or a character outside of ASCII, which no header can carry"
    else:
        return
    raise ConfigError(f"The access token {what}. Make one with: {HOW_TO_MAKE}")


def unauthorized(text: str) -> ApiError:
    """The answer to who may not ask."""
    return ApiError(401, "unauthorized", text, headers={"WWW-Authenticate": 'Bearer realm="playhead"'})


def _bearer(request: Request) -> str | None:
    """The token that a request names. Other schemes are not ours: a proxy before us may ask for them."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _check_site(request: Request, required: bool) -> None:
    """Refuse a change that a browser vouches for by itself, and of which no page of ours is known to ask.

    It does by cookies, and by every `Authorization` but a token. An `Origin` was compared by the guard;
    a browser that sends neither header is older than both.
    """
    headers = request.headers
    if not required or request.method in _SAFE_METHODS or _bearer(request) is not None:
        return
    by_itself = "cookie" in headers or "authorization" in headers
    if not by_itself or "origin" in headers or headers.get("sec-fetch-site") == "same-origin":
        return
    raise ApiError(
        403,
        "bad_origin",
        "A change that is asked for with a cookie must name its page, in Origin or Sec-Fetch-Site."
        " Programs send a token instead: `Authorization: Bearer ...`.",
    )


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")
