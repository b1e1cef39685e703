"""A persisted chat: real files, real processes, real faults (requirement R3)."""

import fcntl
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from playhead.errors import StoreError
from playhead.session.stores import ChatStore
from playhead.types import AssistantMessage, ChatMessage, TextPart, ToolCall, ToolMessage, UserMessage

GOOD = [b'{"action":"add_message","message":{"role":"user","content":"%d"}}' % n for n in range(3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "chat.jsonl"


def contents(store: ChatStore) -> list[object]:
    return [message.content for message in store.messages]


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.broken-*"))


def test_a_persisted_chat_has_the_same_messages_after_a_restart(path: Path) -> None:
    """R3: messages come back whole, in order; loading and error do not."""
    store = ChatStore(persist=path)
    said: list[ChatMessage] = [
        UserMessage((TextPart("see\u2028 é \N{PILE OF POO}\n\0"),)),
        AssistantMessage("", (ToolCall("c", "f", {"b": 1, "a": None}),), stop_reason="tool_calls"),
        ToolMessage("c", "f", "no", is_error=True),
    ]
    for message in said:
        store.add_message(message)
    store.set_error("API failed")
    again = ChatStore(persist=str(path))
    assert [msgspec.json.encode(m) for m in again.messages] == [msgspec.json.encode(m) for m in said]
    assert (again.loading, again.error) == (False, None)


def test_a_chat_without_a_file_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: without `persist` it lives in memory."""
    monkeypatch.chdir(tmp_path)
    ChatStore().add_message(role="user", content="x")
    assert list(tmp_path.iterdir()) == []


def test_clearing_is_persisted_and_the_text_goes_at_the_next_start(path: Path) -> None:
    """R3: a cleared conversation is not back after a restart, and no longer in the file then."""
    store = ChatStore(persist=path)
    store.add_message(role="user", content="secret")
    store.clear_messages()
    store.add_message(role="user", content="after")
    assert contents(ChatStore(persist=path)) == ["after"]
    assert b"secret" not in path.read_bytes()
    store.add_message(role="user", content="more")
    assert contents(ChatStore(persist=path)) == ["after", "more"]


def test_adding_appends_one_line(path: Path) -> None:
    """R3: what is written does not grow with what is there."""
    store = ChatStore(persist=path, fsync=False)
    for n in range(100):
        store.add_message(role="user", content=f"{n:03}")
    lines = path.read_bytes().splitlines()
    assert (len(lines), len({len(line) for line in lines})) == (100, 1)
    inode = path.stat().st_ino
    store.add_message(role="user", content="100")
    assert path.stat().st_ino == inode
    assert path.read_bytes().splitlines()[:100] == lines


def test_half_a_character_pair_is_shown_as_it_is_kept(path: Path) -> None:
    """R3: text that UTF-8 cannot carry (Q202) is the same before and after a restart."""
    store = ChatStore(persist=path)
    store.add_message(role="user", content="a\ud83d b")
    store.add_message(AssistantMessage("", [ToolCall("c", "f", {"x": ["\udc00"]})]))
    assert contents(store)[0] == "a\ufffd b"
    assert ChatStore(persist=path).messages == store.messages


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        pytest.param(GOOD[0] + b"\n" + GOOD[1][:30], ["0"], id="torn"),
        pytest.param(
            GOOD[0] + b"\n" + GOOD[1] + b"\n" + b"\0" * 200, ["0", "1"], id="zeros after a power loss"
        ),
        pytest.param(GOOD[0] + b"\n\xff\xfe{\n" + GOOD[2] + b"\n", ["0", "2"], id="broken in the middle"),
        pytest.param(b"\x80\x02binary\n\x00\x01", [], id="another format"),
        pytest.param(b"[1, 2]\n" + GOOD[0] + b"\n", ["0"], id="other JSON"),
        pytest.param(
            b'{"action":"add_message","message":{"role":"robot"}}\n' + GOOD[0], ["0"], id="no message"
        ),
        pytest.param(b'{"action":"add_message"}\n' + GOOD[0], ["0"], id="nothing in it"),
        pytest.param(
            b'{"action":"add_message","message":{"role":"user","content":"\xff"}}', [], id="not UTF-8"
        ),
        pytest.param(
            GOOD[0] + b'\n{"action":"add_message","message":' + b"[" * 50_000, ["0"], id="nested too deeply"
        ),
    ],
)
def test_a_damaged_file_is_set_aside(
    path: Path, data: bytes, kept: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """R3: never fatal, said in the log, the whole of it kept beside, whole lines go on."""
    store = ChatStore(persist=written(path, data))
    assert contents(store) == kept
    (sibling,) = aside(path)
    assert sibling.read_bytes() == data
    assert sibling.name in caplog.text
    store.add_message(role="user", content="next")
    caplog.clear()
    assert contents(ChatStore(persist=path)) == [*kept, "next"]
    assert (aside(path), caplog.text) == ([sibling], "")


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b"\n\n", [], id="blank lines"),
        pytest.param(b"\n".join(GOOD), ["0", "1", "2"], id="no line break at the end"),
        pytest.param(b"\r\n".join([*GOOD, b""]), ["0", "1", "2"], id="CRLF"),
        pytest.param(
            GOOD[0] + b'\n{"action":"pin","message":7}\n' + GOOD[1], ["0", "1"], id="a later version"
        ),
        pytest.param(GOOD[0][:-2] + b',"colour":"red"},"by":"x"}', ["0"], id="unknown fields"),
    ],
)
def test_what_can_be_read_is_not_set_aside(
    path: Path, data: bytes, kept: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """R3: what is merely unusual, or of a later version (Q205), stays in place."""
    store = ChatStore(persist=written(path, data))
    assert contents(store) == kept
    assert (aside(path), caplog.text, path.read_bytes()) == ([], "", data)
    store.add_message(role="user", content="next")
    assert contents(ChatStore(persist=path)) == [*kept, "next"]
    assert aside(path) == []


def test_a_file_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    """R3: the error names the file and the reason, and no folder of the machine."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "folder", tmp_path / "file" / "chat"):
        with pytest.raises(StoreError) as caught:
            ChatStore(persist=path)
        assert path.name in str(caught.value)
        assert str(tmp_path) not in str(caught.value)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_a_clear_error(path: Path, make: Callable[[Path], object]) -> None:
    """R3: a pipe would be waited for, and a device read, for ever."""
    path.parent.mkdir()
    make(path)
    with pytest.raises(StoreError, match=r"chat\.jsonl is not a file"):
        ChatStore(persist=path)


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """The file system refuses to let any file grow past `size` bytes, in mid-write if need be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_changes_nothing(path: Path) -> None:
    """R3: the action fails as a StoreError; memory and file are what they were, and go on later."""
    store = ChatStore(persist=path)
    store.add_message(role="user", content="one")
    before = path.read_bytes()
    heard: list[object] = []
    store.subscribe(heard.append)
    with no_room_beyond(len(before) + 20):
        with pytest.raises(StoreError, match=r"chat\.jsonl could not be written"):
            store.add_message(role="user", content="two")
        with pytest.raises(StoreError):
            store.clear_messages()
    assert (contents(store), heard, path.read_bytes()) == (["one"], [], before)
    store.add_message(role="user", content="three")
    assert contents(ChatStore(persist=path)) == ["one", "three"]


def test_a_damaged_file_on_a_full_disk_is_not_fatal(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """R3: when it cannot be set aside it stays as it is, is read, and what is added is not lost."""
    data = GOOD[0] + b"\n" + GOOD[1][:30]
    written(path, data)
    with no_room_beyond(20):
        store = ChatStore(persist=path)
    assert (contents(store), path.read_bytes()) == (["0"], data)
    assert "could not be set aside" in caplog.text
    assert [p.name for p in path.parent.iterdir()] == [path.name], "each start would leave more"
    store.add_message(role="user", content="next")
    assert contents(ChatStore(persist=path)) == ["0", "next"]


WRITER = """
import sys
from playhead.session.stores import ChatStore
store = ChatStore(persist=sys.argv[1])
for n in range(int(sys.argv[3])):
    store.add_message(role="user", content=f"{sys.argv[2]}{n}" + "x" * 5000)
    print(n, flush=True)
sys.stdin.read()
"""


def writer(path: Path, name: str, count: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_killed_process_loses_nothing_that_was_added(path: Path) -> None:
    """R3: a message is on disk when the action returns."""
    with writer(path, "a", 1_000_000) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(30)]
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    assert len(told) == 30
    kept = [str(content).rstrip("x") for content in contents(ChatStore(persist=path))]
    assert kept[:30] == [f"a{n}" for n in range(30)]
    assert kept == [f"a{n}" for n in range(len(kept))]


def die_in_the_middle_of_a_line(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            file.write(b'{"action":"add_mess')


def test_two_processes_may_write_one_file(path: Path) -> None:
    """R3: no line is lost or mixed, also when a third one sets the file aside meanwhile."""
    torn = written(path, GOOD[0] + b"\n" + GOOD[1][:30])
    ours = ChatStore(persist=torn)
    with writer(path, "a", 200) as first, writer(path, "b", 200) as second:
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == "0\n"
        for n in range(20):
            ours.add_message(role="user", content=f"c{n}")
            die_in_the_middle_of_a_line(path)
            ChatStore(persist=path)
        first.communicate(timeout=60)
        second.communicate(timeout=60)
    kept = {str(content).rstrip("x") for content in contents(ChatStore(persist=path))}
    assert kept == {"0"} | {f"{who}{n}" for who in "ab" for n in range(200)} | {f"c{n}" for n in range(20)}
    assert contents(ours) == ["0", *(f"c{n}" for n in range(20))]


def test_a_stuck_holder_of_the_file_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: a lock that never comes free is an error and not a hang."""
    store = ChatStore(persist=path)
    store.add_message(role="user", content="one")
    monkeypatch.setattr("playhead.session.linefile._LOCK_TIMEOUT", 0.05)
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="held by another process"):
            store.add_message(role="user", content="two")
    finally:
        os.close(fd)
    assert contents(store) == ["one"]
    store.add_message(role="user", content="three")
    assert contents(ChatStore(persist=path)) == ["one", "three"]
