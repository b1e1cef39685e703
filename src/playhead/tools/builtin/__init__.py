"""The tools that ship with the package, and the registry that holds them."""

from typing import Any

from playhead.tools.builtin.assets import Library
from playhead.tools.builtin.correct_transcript import TranscriptWriter, correct_transcript
from playhead.tools.builtin.echo_context import echo_context
from playhead.tools.builtin.make_captions import CaptionMaker, MadeCaptions, make_captions
from playhead.tools.builtin.search_transcript import Transcripts, search_transcript
from playhead.tools.builtin.seek import seek
from playhead.tools.builtin.transcribe_video import Transcriber, transcribe_video
from playhead.tools.registry import ToolRegistry
from playhead.tools.tenants import belonging, for_each_tenant
from playhead.types import ToolDefinition

__all__ = [
    "CaptionMaker",
    "Library",
    "MadeCaptions",
    "Transcriber",
    "TranscriptWriter",
    "Transcripts",
    "correct_transcript",
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

    Without a library and a service it is there too, and answers that it is not set up. For the
    run of a tenant it has the media of that tenant, `library.of_tenant(...)`.
    """

    def transcribe(tenant: str | None) -> ToolDefinition[..., Any]:
        return transcribe_video(belonging(library, tenant), belonging(service, tenant, common=True))

    registry = ToolRegistry([for_each_tenant(transcribe)])
    if mock:
        registry.register(echo_context())
    return registry
