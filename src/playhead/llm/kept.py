"""What a message keeps of its provider's own, for the model and the server that made it.

A message of a reply holds it under the dialect's name in `provider_metadata`, with the server, and
where that matters the model, that it may go back to.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from playhead.types import AssistantMessage, JsonObject


def own_data(message: AssistantMessage, dialect: str, **owner: str) -> JsonObject:
    """Return what the message keeps of this dialect, or nothing if another server or model made it."""
    own: JsonObject = (message.provider_metadata or {}).get(dialect) or {}
    return own if all(own.get(field) == value for field, value in owner.items()) else {}


def still_says(message: AssistantMessage, texts: Sequence[JsonObject], calls: int) -> bool:
    """Does the message hold what was kept of it? `texts` are ranges of its text, in their order."""
    end = texts[-1]["end"] if texts else 0
    return calls == len(message.tool_calls) and end == len(message.content)


def is_storable(value: Any) -> bool:
    """Is there no half a character in it? What was read leniently may hold one."""
    try:
        return bool(msgspec.json.encode(value))
    except UnicodeEncodeError:
        return False
