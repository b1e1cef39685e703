"""The one file of a form, as a stream: nothing of it is kept in memory or spooled."""

from collections.abc import AsyncGenerator, AsyncIterator

from playhead.server.errors import ApiError


async def file_part(content_type: str, body: AsyncIterator[bytes]) -> tuple[str, AsyncGenerator[bytes, None]]:
    """Return the name and the bytes of the first file in a `multipart/form-data` body.

    Fields before it and all that follows it are passed over. Raises `ApiError` 400, also while the
    bytes are read, if the form is malformed or ends early.
    """
    from python_multipart.multipart import parse_options_header

    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise _broken("its Content-Type has no boundary")
    form = _Form(boundary)
    async for piece in body:
        form.write(piece)
        if form.name is not None:
            return form.name, form.rest(body)
    raise ApiError(400, "invalid", "file: The form holds no file.", path="file")


class _Form:
    def __init__(self, boundary: bytes) -> None:
        from python_multipart.exceptions import FormParserError
        from python_multipart.multipart import MultipartParser

        self.name: str | None = None
        self._inside = self._complete = False
        self._field = self._value = b""
        self._disposition = b""
        self._pieces: list[bytes] = []
        self._error = FormParserError
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._part_begins,
                    "on_header_field": self._header_field,
                    "on_header_value": self._header_value,
                    "on_header_end": self._header_ends,
                    "on_headers_finished": self._headers_end,
                    "on_part_data": self._part_data,
                    "on_part_end": self._part_ends,
                },
            )
        except FormParserError:
            raise _broken("its boundary is too long") from None

    def write(self, piece: bytes) -> None:
        try:
            self._parser.write(piece)
        except self._error:
            raise _broken("its parts are malformed") from None

    async def rest(self, body: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        for piece in self._taken():
            yield piece
        async for more in body:
            self.write(more)
            for piece in self._taken():
                yield piece
        if not self._complete:
            raise _broken("it ends before its file does")

    def _taken(self) -> list[bytes]:
        taken, self._pieces = self._pieces, []
        return taken

    def _part_begins(self) -> None:
        self._disposition = b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_ends(self) -> None:
        if self._field.lower() == b"content-disposition":
            self._disposition = self._value
        self._field = self._value = b""

    def _headers_end(self) -> None:
        from python_multipart.multipart import parse_options_header

        name = parse_options_header(self._disposition)[1].get(b"filename")
        if name is not None and self.name is None:
            self.name = name.decode(errors="replace")
            self._inside = True

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._inside:
            self._pieces.append(data[start:end])

    def _part_ends(self) -> None:
        if self._inside:
            self._inside, self._complete = False, True


def _broken(what: str) -> ApiError:
    return ApiError(400, "invalid", f"The form could not be read: {what}.", path="$")
