"""Which file a call means: the one that it names, or the only one that is there."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from playhead.errors import ToolError
from playhead.types import AgentContext, JsonObject, MediaAsset

_MAX_LISTED = 50
# A model may ask for anything: of a name that is not there, no more than this is said again.
_SHOWN = 100


class Library(Protocol):
    """The media files that this process can open."""

    def assets(self) -> Sequence[MediaAsset]: ...
    def path(self, asset_id: str) -> Path:
        """Return where the file is.

        Raises:
            MediaError: there is none with that id (`not_found`).
        """


def text_of(args: JsonObject, key: str) -> str | None:
    """An argument; blank is absent, since models fill in empty strings."""
    value: str = args.get(key) or ""
    return value.strip() or None


def assets_of(context: Any, library: Library) -> Sequence[MediaAsset]:
    """Those of the context, or of the library when it has none."""
    if isinstance(context, AgentContext) and context.media_assets:
        return context.media_assets
    return library.assets()


def is_playable(asset: MediaAsset) -> bool:
    """Whether there is something to hear in it."""
    return asset.type in ("video", "audio")


def choose(assets: Sequence[MediaAsset], wanted: str | None, shown: str | None = None) -> MediaAsset:
    """Return the one that is named, by id, exact name, or name in any case; without a name the only one.

    Of several without a name it is the one that is `shown`, where that is said. Raises `ToolError`,
    which lists what there is.
    """
    playable = [asset for asset in assets if is_playable(asset)]
    if wanted is None:
        on_screen = [asset for asset in playable if asset.id == shown]
        if on_screen:
            return on_screen[0]
        if not playable:
            raise ToolError("No media loaded: ask the user to add a video or an audio file first.")
        if len(playable) > 1:
            raise ToolError(f"There is more than one; say which by assetId.\n{listed(playable)}")
        return playable[0]
    tests: tuple[Callable[[MediaAsset], bool], ...] = (
        lambda asset: asset.id == wanted,
        lambda asset: asset.name == wanted,
        lambda asset: asset.name.casefold() == wanted.casefold(),
    )
    found = next((hits for test in tests if (hits := [asset for asset in assets if test(asset)])), [])
    named = repr(wanted if len(wanted) <= _SHOWN else f"{wanted[:_SHOWN]}…")
    if not found:
        if not assets:
            raise ToolError(f"No media loaded, so there is no {named}. Ask the user to add a file first.")
        raise ToolError(f"There is no asset {named}; use one of these ids.\n{listed(assets)}")
    if len(found) > 1:
        raise ToolError(f"{named} is the name of more than one; use the id.\n{listed(found)}")
    if not is_playable(found[0]):
        raise ToolError(f"{found[0].name!r} is of type {found[0].type!r}: there is nothing to hear in it.")
    return found[0]


def shown_in(context: Any) -> str | None:
    """The id of the file that is open: `activeSceneId` up to a fragment, as in `id#t=2.5,7`."""
    scene = context.active_scene_id if isinstance(context, AgentContext) else None
    return scene.partition("#")[0] if scene else None


def listed(assets: Sequence[MediaAsset]) -> str:
    """A line for each, with its id."""
    lines = [f"- assetId {asset.id!r}: {asset.name!r} ({asset.type})" for asset in assets[:_MAX_LISTED]]
    if len(assets) > _MAX_LISTED:
        lines.append(f"- and {len(assets) - _MAX_LISTED} more")
    return "\n".join(lines)
