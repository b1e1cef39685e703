"""The framing of outgoing events."""

import pytest

from playhead.protocols.sse import comment, frame


def test_a_frame_carries_its_fields_and_ends_with_an_empty_line() -> None:
    assert frame(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert frame(b"{}", event="text_delta", id="7.12") == b"id: 7.12\nevent: text_delta\ndata: {}\n\n"
    assert frame("né".encode(), event="x") == "event: x\ndata: né\n\n".encode()


def test_a_comment_is_no_event() -> None:
    assert comment() == b": \n\n"
    assert comment("still here") == b": still here\n\n"


@pytest.mark.parametrize(
    ("data", "event", "id"),
    [
        (b"a\nb", None, None),
        (b"a\rb", None, None),
        (b"", "a\nb", None),
        (b"", None, "1\n"),
        (b"", None, "1\0"),
    ],
)
def test_nothing_can_break_out_of_its_frame(data: bytes, event: str | None, id: str | None) -> None:
    with pytest.raises(ValueError, match="one line"):
        frame(data, event=event, id=id)


def test_a_comment_cannot_hide_an_event() -> None:
    with pytest.raises(ValueError, match="one line"):
        comment("x\n\ndata: y")
