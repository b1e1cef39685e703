"""Whatever the log holds, the request is valid, and nothing said is lost. Wire cases E, I, J."""

import weakref
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.llm.history import NO_RESULT, EncodedHistory, Group, groups, normalise
from playhead.types import AssistantMessage, ChatMessage, SystemMessage, ToolCall, ToolMessage, UserMessage

Log = list[ChatMessage]

IDS = st.sampled_from(["a", "b", "c", "a-2", ""])
CALLS = st.lists(st.builds(ToolCall, IDS, st.sampled_from(["f", "g", ""]), st.just({})), max_size=3)
MESSAGES = st.lists(
    st.one_of(
        st.builds(UserMessage, st.sampled_from(["hi", "go on", ""])),
        st.builds(AssistantMessage, st.sampled_from(["", "text"]), CALLS),
        st.builds(ToolMessage, IDS, st.just("f"), st.sampled_from(["1", "2"])),
        st.builds(SystemMessage, st.sampled_from(["be terse", ""])),
    ),
    max_size=14,
)


def call(id: str, name: str = "f") -> ToolCall:
    return ToolCall(id, name, {})


def asks(*ids: str, text: str = "") -> AssistantMessage:
    return AssistantMessage(text, [call(id) for id in ids])


def answer(id: str, text: str = "done") -> ToolMessage:
    return ToolMessage(id, "f", text)


def shape(messages: Sequence[ChatMessage]) -> list[str]:
    def one(message: ChatMessage) -> str:
        if isinstance(message, AssistantMessage) and message.tool_calls:
            return "calls " + ",".join(c.id for c in message.tool_calls)
        if isinstance(message, ToolMessage):
            return f"{message.tool_call_id}={'?' if message.content == NO_RESULT else message.content}"
        return f"{message.role} {message.content}"

    return [one(message) for message in messages]


def assert_valid(messages: Sequence[ChatMessage]) -> None:
    """Every call has exactly one result, right behind it, in call order; no id comes twice."""
    expected: list[str] = []
    seen: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            assert expected, "a result without a call"
            assert message.tool_call_id == expected.pop(0)
            continue
        assert not expected, "a call without its result"
        if isinstance(message, AssistantMessage):
            assert message.content or message.tool_calls or message.provider_metadata
            expected = [c.id for c in message.tool_calls]
            assert all(expected)
            assert len(set(expected)) == len(expected)
            assert not seen & set(expected)
            seen |= set(expected)
    assert not expected


@given(MESSAGES)
def test_any_history_becomes_valid(messages: list[ChatMessage]) -> None:
    """Q035, Q085, Q088, Q167, Q172: pairs hold in both directions, whatever the log holds."""
    assert_valid(normalise(messages))


@given(MESSAGES)
def test_the_normaliser_is_idempotent(messages: list[ChatMessage]) -> None:
    """Q172: it runs at load and before each request."""
    once = normalise(messages)
    assert shape(normalise(once)) == shape(once)


@given(MESSAGES)
def test_nothing_said_is_lost(messages: list[ChatMessage]) -> None:
    """Every text of a person and of a model is still there, in order."""

    def said(of: Sequence[ChatMessage]) -> list[str]:
        return [str(m.content) for m in of if isinstance(m, UserMessage | AssistantMessage) and m.content]

    assert said(normalise(messages)) == said(messages)


@given(MESSAGES, st.lists(st.integers(0, 14), max_size=4))
def test_a_growing_history_encodes_to_the_same_bytes(messages: list[ChatMessage], cuts: list[int]) -> None:
    """H: a message is encoded once, and the request is the same as if all were encoded anew."""

    def encode(group: Group, before: object = None, after: object = None) -> list[bytes]:
        return [msgspec.json.encode([m.role, m.content, getattr(m, "tool_call_id", None)]) for m in group]

    growing = EncodedHistory(encode)
    for cut in [*sorted(cuts), len(messages)]:
        pieces, systems = growing.update(messages[:cut])
        whole, whole_systems = EncodedHistory(encode).update(messages[:cut])
        assert b"".join(pieces) == b"".join(whole)
        assert sorted(systems) == sorted(whole_systems)
        assert b"".join(pieces) == b",".join(p for group in groups(messages[:cut]) for p in encode(group))


@given(MESSAGES, st.lists(st.integers(0, 14), max_size=4), st.lists(st.integers(0, 13), max_size=2))
def test_a_new_run_begins_where_the_last_one_was(
    messages: list[ChatMessage], cuts: list[int], left_out: list[int]
) -> None:
    """Issue 4: one turn on a long history costs what is new in it; an edited history is seen as such."""

    def encode(group: Group, before: object = None, after: object = None) -> list[bytes]:
        return [msgspec.json.encode([m.role, m.content]) for m in group]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("playhead.llm.history._LONG", 0)
        for cut in [*cuts, len(messages)]:
            now = messages[:cut]
            edited = [m for n, m in enumerate(now) if n not in left_out]
            for history in (now, edited, now):
                pieces, systems = EncodedHistory(encode, "kept").update(history)
                whole, whole_systems = EncodedHistory(encode).update(history)
                assert b"".join(pieces) == b"".join(whole)
                assert systems == whole_systems


def test_what_is_kept_of_a_history_goes_with_it() -> None:
    """It holds no message alive, and there is one copy however many turns there were."""
    history: list[ChatMessage] = []
    for n in range(60):
        history += [UserMessage(f"q{n}"), AssistantMessage(f"a{n}")]
        EncodedHistory(lambda *_: [b"{}"], "kept").update(history)
    assert sum("kept" in m.__dict__ for m in history) == 1
    gone = weakref.ref(history[0])
    history.clear()
    assert gone() is None


def test_a_settled_message_is_encoded_once() -> None:
    """H: no cost per step that grows with the history."""
    encoded: list[str] = []

    def encode(group: Group, before: object = None, after: object = None) -> list[bytes]:
        encoded.extend(m.id for m in group)
        return [b"{}"]

    history: list[ChatMessage] = [UserMessage("go")]
    growing = EncodedHistory(encode)
    for n in range(50):
        growing.update(history)
        history += [asks(f"c{n}"), answer(f"c{n}")]
    growing.update(history)
    # Each message once when it is last, and once more when something follows it.
    assert len(encoded) <= 2 * len(history) + 2


def test_results_go_behind_their_call_in_call_order() -> None:
    """Q088: results in the wrong order, with a user message between them."""
    messages: Log = [
        UserMessage("go"),
        asks("x", "y"),
        answer("y"),
        UserMessage("wait"),
        answer("x"),
    ]
    assert shape(normalise(messages)) == ["user go", "calls x,y", "x=done", "y=done", "user wait"]


def test_a_call_without_a_result_is_answered_and_a_stray_result_left_out() -> None:
    """Q167, Q172: both directions."""
    messages: Log = [
        answer("old"),
        UserMessage("go"),
        asks("x"),
        UserMessage("hello?"),
        answer("zzz"),
    ]
    assert shape(normalise(messages)) == ["user go", "calls x", "x=?", "user hello?"]


def test_an_id_that_comes_again_gets_a_new_one_with_its_result() -> None:
    """Q034, Q035: counters that restart, and names used as ids."""
    messages: Log = [
        asks("c"),
        answer("c", "first"),
        asks("c", "c"),
        answer("c", "second"),
        answer("c", "third"),
    ]
    assert shape(normalise(messages)) == [
        "calls c",
        "c=first",
        "calls c-2,c-3",
        "c-2=second",
        "c-3=third",
    ]


def test_a_message_with_nothing_in_it_is_left_out() -> None:
    """Q085: neither text nor calls."""
    assert shape(normalise([UserMessage("a"), AssistantMessage(""), UserMessage("b")])) == [
        "user a",
        "user b",
    ]


def test_system_messages_come_first_in_order() -> None:
    """S3: wherever they stand in the list."""
    messages: Log = [
        UserMessage("a"),
        SystemMessage("one"),
        asks("x"),
        SystemMessage("two"),
        answer("x"),
    ]
    assert shape(normalise(messages))[:2] == ["system one", "system two"]
    assert EncodedHistory(lambda *_: [b"{}"]).update(messages)[1] == ["one", "two"]
