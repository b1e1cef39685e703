"""Bytes to server-sent events, in whatever pieces the bytes arrive.

The rules are those of https://html.spec.whatwg.org/multipage/server-sent-events.html: CR, LF and
CRLF end a line, one BOM is stripped, `data:` lines of one event are joined with LF, a blank line
dispatches when there is data. Lines are split as bytes and never decoded here, so a character may
be cut anywhere.
"""

from playhead.errors import ProtocolError

MAX_EVENT = 16 * 1024 * 1024

SSEvent = tuple[str, bytes]
"""The event's name (`message` unless the stream says otherwise) and its data."""


class EventParser:
    """Feed it bytes, get events. One parser reads one stream."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._data: list[bytes] = []
        self._name = ""
        self._after_cr = False
        self._at_start = True
        # Is what follows the beginning of an event?
        self._between = True

    def feed(self, piece: bytes) -> list[SSEvent]:
        """Return the events that `piece` completes. Raises `ProtocolError` for one of over 16 MiB."""
        if self._between and _is_one_event(piece):
            self._at_start = False
            return [("message", piece[6:-2])]
        if self._after_cr and piece:
            self._after_cr = False
            if piece[:1] == b"\n":
                piece = piece[1:]
        if b"\r" in piece:
            self._after_cr = piece[-1:] == b"\r"
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._size += len(piece)
        if self._size > MAX_EVENT:
            text = f"The stream sent an event of more than {MAX_EVENT} bytes."
            raise ProtocolError(text, passing=False)
        if b"\n" not in piece:
            self._pieces.append(piece)
            self._between = False
            return []
        if self._pieces:
            self._pieces.append(piece)
            piece = b"".join(self._pieces)
        *lines, rest = piece.split(b"\n")
        self._pieces = [rest] if rest else []
        events = self._lines(lines)
        self._size = len(rest) + sum(map(len, self._data))
        self._between = not (self._size or self._data or self._name or self._after_cr)
        return events

    def finish(self) -> list[SSEvent]:
        """Return the event that the end of the stream left without its blank line, if any.

        Servers do forget it. Where the stream was cut instead, the data is half a document, and
        whoever decodes it finds out.
        """
        rest = b"".join(self._pieces)
        self._pieces = []
        return self._lines([rest, b""] if rest else [b""])

    def _lines(self, lines: list[bytes]) -> list[SSEvent]:
        if self._at_start and lines:
            self._at_start = False
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        events: list[SSEvent] = []
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line:
                if data:
                    payload = data[0] if len(data) == 1 else b"\n".join(data)
                    if payload.strip():
                        events.append((self._name or "message", payload))
                    data.clear()
                self._name = ""
            elif line[:6] == b"event:":
                self._name = line[6:].strip().decode("utf-8", "replace")
            elif line == b"data":
                data.append(b"")
        return events


def _is_one_event(piece: bytes) -> bool:
    """Is this one line of data, not blank, and the end of its event? So it arrives, if it does by itself."""
    line = len(piece) - 2
    return (
        piece.find(b"\n") == line
        and piece[-1:] == b"\n"
        and piece[:6] == b"data: "
        and piece[6] > 32
        and line < MAX_EVENT
        and b"\r" not in piece
    )
