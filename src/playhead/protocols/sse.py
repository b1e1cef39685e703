"""Outgoing server-sent events, as bytes. Incoming ones are read in `llm/sse.py`.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""


def frame(data: bytes, *, event: str | None = None, id: str | None = None) -> bytes:
    """Return one event.

    Args:
        data: one line, as an encoder of JSON makes it.
        event: the type that the reader's listener is registered for.
        id: what the reader sends back as `Last-Event-ID`; leave it out for a frame that cannot be
            resumed from.

    Raises:
        ValueError: a line break in any of them, or a NUL in `id` (readers drop such an id).
    """
    head = b""
    if id is not None:
        head += b"id: " + _one_line(id.encode(), "id") + b"\n"
    if event is not None:
        head += b"event: " + _one_line(event.encode(), "event") + b"\n"
    return b"%bdata: %b\n\n" % (head, _one_line(data, "data"))


def comment(text: str = "") -> bytes:
    """Return a frame that readers skip: it keeps proxies from closing a silent stream (Q215)."""
    return b": %b\n\n" % _one_line(text.encode(), "comment")


def _one_line(value: bytes, name: str) -> bytes:
    if b"\n" in value or b"\r" in value or (name == "id" and b"\0" in value):
        raise ValueError(f"The {name} of an event must be one line, and is {value[:80]!r}.")
    return value
