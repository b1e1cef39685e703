"""The HTTP surface, for the extra `server`: `create_app()` returns an ASGI app, `serve()` serves it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playhead.server.access import Identity
    from playhead.server.app import create_app
    from playhead.server.listen import serve
    from playhead.server.parts import ServerOptions

__all__ = ["Identity", "ServerOptions", "create_app", "serve"]

_HOMES = {"create_app": "app", "Identity": "access", "ServerOptions": "parts", "serve": "listen"}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'playhead.server' has no attribute {name!r}")
    try:
        return getattr(import_module(f"playhead.server.{home}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn", "python_multipart"):
            raise
        raise ImportError(
            f"playhead.server needs {error.name}: install it with `pip install 'playhead[server]'`."
        ) from error


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
