"""The parts as one of those who ask sees them: what is another's is not there.

Every route works with these and never with the whole, so a route cannot forget whom it is for.
"""

import inspect
from collections.abc import Callable
from typing import Any, cast

from playhead.session.sessions import Sessions

# Those that begin a run: the message, or the question asked again, has a limit to keep to.
_BEGINNING = frozenset({"run", "start", "edit", "retry"})
# Those that are about no thread.
_COMMON = frozenset({"check"})


def _takes_tenant(method: Any) -> bool:
    if not inspect.isfunction(method):
        return False
    tenant = inspect.signature(method).parameters.get("tenant")
    return tenant is not None and tenant.kind is inspect.Parameter.KEYWORD_ONLY


_OF_A_TENANT = frozenset(name for name, method in inspect.getmembers(Sessions) if _takes_tenant(method))


def sessions_of(
    sessions: Sessions, tenant: str | None, begins: Callable[[int], None] = lambda at_work: None
) -> Sessions:
    """Return the threads and runs of one tenant: no other can be named in it.

    `begins` is told how many runs of the tenant are at work here before another one begins, and may
    raise.
    """
    # It has what `Sessions` has, but for what is about more than one tenant.
    return cast(Sessions, _SessionsOf(sessions, tenant, begins))


class _SessionsOf:
    def __init__(self, sessions: Sessions, tenant: str | None, begins: Callable[[int], None]) -> None:
        self._sessions = sessions
        self._tenant = tenant
        self._begins = begins

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._sessions, name)
        if name in _COMMON:
            return method
        if name not in _OF_A_TENANT:
            raise AttributeError(f"{name!r} is not about one tenant: a route has no use of it")

        def bound(*args: Any, **more: Any) -> Any:
            return method(*args, **{**more, "tenant": self._tenant})

        async def begun(*args: Any, **more: Any) -> Any:
            self._begins(await self._sessions.at_work(tenant=self._tenant))
            return await bound(*args, **more)

        return begun if name in _BEGINNING else bound
