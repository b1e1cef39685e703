"""The packages of the extra `speech`, and what to say where they are not installed."""

from importlib import import_module

from playhead.errors import MediaError

INSTALL = "Install it with: pip install 'playhead[speech]'"


def require(*packages: str) -> None:
    """Import packages, which may take half a second. Raises `MediaError` `needs_package`."""
    for package in packages:
        try:
            import_module(package)
        except ImportError:
            raise MediaError(f"This needs the package {package!r}. {INSTALL}", code="needs_package") from None
