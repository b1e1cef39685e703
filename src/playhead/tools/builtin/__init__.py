"""The tools that ship with the package, and the registry that holds them."""

from playhead.tools.builtin.assets import Library
from playhead.tools.builtin.echo_context import echo_context
from playhead.tools.builtin.make_captions import CaptionMaker, MadeCaptions, make_captions
from playhead.tools.builtin.search_transcript import Transcripts, search_transcript
from playhead.tools.builtin.seek import seek
from playhead.tools.builtin.transcribe_video import Transcriber, transcribe_video
from playhead.tools.registry import ToolRegistry

__all__ = [
    "CaptionMaker",
    "Library",
    "MadeCaptions",
    "Transcriber",
    "Transcripts",
    "default_registry",
    "echo_context",
    "make_captions",
    "search_transcript",
    "seek",
    "transcribe_video",
]


def default_registry(
    library: Library | None = None, service: Transcriber | None = None, *, mock: bool = False
) -> ToolRegistry:
    """Return a registry with `transcribe_video` in it, and `echo_context` beside it for the mock model.

    Without a library and a service `transcribe_video` is there too, and answers that it is not set up.
    """
    registry = ToolRegistry([transcribe_video(library, service)])
    if mock:
        registry.register(echo_context())
    return registry
