"""The bytes and the kind of a picture, a sound or a file, for dialects that want them apart."""

import base64
import mimetypes
from urllib.parse import unquote_to_bytes, urlsplit

from playhead.types import AudioPart, FilePart, ImagePart

Media = ImagePart | AudioPart | FilePart


def media_type(part: Media) -> str:
    """Return what the part says of itself, else its data URL, else its name. Empty is unknown."""
    said = part.media_type or (part.url[5:].partition(",")[0] if part.url.startswith("data:") else "")
    kind = said.partition(";")[0].strip().lower()
    if kind:
        return "image/jpeg" if kind == "image/jpg" else kind
    try:
        path = urlsplit(part.url).path
    except ValueError:
        path = ""
    guesses = (mimetypes.guess_type(name)[0] for name in (part.name, path))
    return next(filter(None, guesses), "")


def inline_data(part: Media) -> str | None:
    """Return the base64 text of a data URL, or None for any other address."""
    if not part.url.startswith("data:"):
        return None
    head, _, data = part.url[5:].partition(",")
    if head.rpartition(";")[2].strip().lower() == "base64":
        return data
    return base64.b64encode(unquote_to_bytes(data)).decode()


def inline_text(part: Media) -> str | None:
    """Return the text of a data URL that holds UTF-8, or None."""
    data = inline_data(part)
    try:
        return None if data is None else base64.b64decode(data, validate=True).decode()
    except ValueError:
        return None
