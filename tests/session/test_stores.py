"""The two stores as a front end uses them (requirements A and B)."""

import asyncio
import time
from typing import Any

import pytest

from playhead.errors import StoreError
from playhead.session.observable import Observable
from playhead.session.stores import AgentState, AgentStore, ChatState, ChatStore
from playhead.types import AgentContext, AssistantMessage, ChatMessage, ToolCall, ToolMessage, UserMessage

CONTEXT = AgentContext(project_id="p1")


def test_a_chat_starts_empty() -> None:
    """R1: no messages, not loading, no error."""
    store = ChatStore()
    assert (store.messages, store.loading, store.error) == ((), False, None)


def test_messages_keep_their_order() -> None:
    """R1, R2: what is added last stands last; clearing leaves nothing."""
    store = ChatStore()
    said: list[ChatMessage] = [
        UserMessage("one"),
        AssistantMessage("", [ToolCall("c", "f", {})]),
        ToolMessage("c", "f", "ok"),
    ]
    for message in said:
        assert store.add_message(message) == message
    assert list(store.messages) == said
    store.clear_messages()
    assert store.messages == ()


def test_a_message_may_be_given_by_role_and_content() -> None:
    """R4: one entry with that role and content, a filled unique id and a timestamp."""
    before = time.time_ns() // 1_000_000
    store = ChatStore()
    store.add_message(role="user", content="Hello")
    (message,) = store.messages
    assert (message.role, message.content) == ("user", "Hello")
    assert before <= message.timestamp <= time.time_ns() // 1_000_000
    store.add_message(role="user", content="Hello")
    ids = {m.id for m in store.messages}
    assert len(ids) == 2
    assert all(ids)


def test_the_other_fields_of_a_role_may_be_given_too() -> None:
    """R4: a tool message needs its call; ids and timestamps given are kept."""
    store = ChatStore()
    store.add_message(role="tool", content="42", tool_call_id="c", tool_name="add", id="m", timestamp=7)
    assert store.messages == (ToolMessage("c", "add", "42", id="m", timestamp=7),)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"role": "robot", "content": "x"}, "'robot'; it must be one of system, user, assistant, tool"),
        ({"role": "", "content": "x"}, "role"),
        ({"role": "user", "content": 5}, "role 'user'"),
        ({"role": "tool", "content": "x"}, "role 'tool'"),
        ({"role": "user", "content": "x", "colour": "red"}, "colour"),
        ({"message": {"role": "user", "content": "x"}}, "dict is no message"),
        ({"message": "hello"}, "str is no message"),
    ],
)
def test_what_is_no_message_is_refused(given: dict[str, Any], says: str) -> None:
    """R4: a clear error, and nothing was added."""
    store = ChatStore()
    with pytest.raises(StoreError, match=says):
        store.add_message(**given)
    assert store.messages == ()


def test_an_error_stays_and_ends_the_loading() -> None:
    """R5: the error reads so until it is cleared; loading is False."""
    store = ChatStore()
    store.set_loading(True)
    store.set_error("API failed")
    assert (store.error, store.loading) == ("API failed", False)
    store.add_message(role="user", content="again")
    store.set_loading(True)
    assert (store.error, store.loading) == ("API failed", True)
    store.set_error(None)
    assert (store.error, store.loading) == (None, True)


def test_an_agent_starts_idle() -> None:
    """R6: idle, no tool, no context."""
    store = AgentStore()
    assert (store.status, store.active_tool, store.context) == ("idle", None, None)


def test_tool_execution_is_tracked_and_reset() -> None:
    """R7, R8, R9: the actions say what they say; `reset` gives the start again."""
    store = AgentStore()
    store.set_active_tool("echo_context")
    store.set_status("processing")
    store.set_context(CONTEXT)
    assert store.state == AgentState("processing", "echo_context", CONTEXT)
    store.reset()
    assert store.state == AgentState("idle", None, None)


def test_a_status_that_is_none_is_refused() -> None:
    """R6: the status is one of five words."""
    store = AgentStore()
    with pytest.raises(StoreError, match="'busy'; it must be one of idle, sending"):
        store.set_status("busy")  # type: ignore[arg-type]
    assert store.status == "idle"


def test_a_listener_hears_each_change_and_nothing_else() -> None:
    """Observable: told the new state after each change, until it unsubscribes."""
    store = AgentStore()
    heard: list[str] = []
    unsubscribe = store.subscribe(lambda state: heard.append(state.status))
    store.set_status("sending")
    store.set_status("sending")
    store.set_status("idle")
    unsubscribe()
    unsubscribe()
    store.set_status("error")
    assert heard == ["sending", "idle"]


def test_the_state_handed_out_cannot_be_changed() -> None:
    """Observable: what a listener holds is not what the store holds next."""
    store = ChatStore()
    states: list[ChatState] = []
    store.subscribe(states.append)
    store.add_message(role="user", content="one")
    before = store.messages
    store.add_message(role="user", content="two")
    assert (len(before), len(states[0].messages), len(states[1].messages)) == (1, 1, 2)
    with pytest.raises(AttributeError):
        states[0].loading = True  # type: ignore[misc]
    with pytest.raises(AttributeError):
        store.messages = ()  # type: ignore[misc]


@pytest.mark.parametrize("fault", [ValueError("api_key=canary-0123456789"), asyncio.CancelledError()])
def test_a_failing_listener_breaks_nothing(fault: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """Observable: the change is made, the others are told, the log says what happened."""
    store = ChatStore()
    heard: list[int] = []

    def fail(state: ChatState) -> None:
        raise fault

    store.subscribe(fail)
    store.subscribe(lambda state: heard.append(len(state.messages)))
    store.add_message(role="user", content="one")
    assert (len(store.messages), heard) == (1, [1])
    assert "A listener of ChatStore failed." in caplog.text
    assert "canary" not in caplog.text


def test_a_listener_may_change_the_store() -> None:
    """Observable: a change from within a listener leaves nobody with an older state."""
    store = ChatStore()
    heard: list[tuple[bool, str | None]] = []

    def stop_loading(state: ChatState) -> None:
        if state.loading:
            store.set_error("no")

    store.subscribe(stop_loading)
    store.subscribe(lambda state: heard.append((state.loading, state.error)))
    store.set_loading(True)
    assert heard[-1] == (False, "no")
    assert (True, None) not in heard


def test_a_listener_that_was_removed_meanwhile_is_not_called() -> None:
    """Observable: unsubscribing holds at once, also from within another listener."""
    store = AgentStore()
    heard: list[AgentState] = []
    later: list[Any] = []
    store.subscribe(lambda state: later[0]())
    later.append(store.subscribe(heard.append))
    store.set_status("sending")
    assert heard == []


def test_a_coroutine_function_is_no_listener() -> None:
    """Observable: one that would never run is refused with what to do."""

    async def listen(state: AgentState) -> None: ...

    with pytest.raises(StoreError, match="plain function"):
        AgentStore().subscribe(listen)


@pytest.mark.anyio
async def test_a_slow_listener_does_not_hold_up_a_run(caplog: pytest.LogCaptureFixture) -> None:
    """Observable: it is called, then left alone for a while, and gets the last state in the end."""
    store = AgentStore()
    last = asyncio.Event()
    heard: list[str | None] = []

    def listen(state: AgentState) -> None:
        heard.append(state.active_tool)
        time.sleep(0.03)
        if state.active_tool == "199":
            last.set()

    store.subscribe(listen)
    started = time.monotonic()
    for n in range(200):
        store.set_active_tool(str(n))
        await asyncio.sleep(0)
    assert time.monotonic() - started < 3, "200 changes would take 6 s if each waited for the listener"
    async with asyncio.timeout(10):
        await last.wait()
    assert heard[0] == "0"
    assert heard[-1] == "199"
    assert len(heard) < 100
    assert "A listener of AgentStore took" in caplog.text


@pytest.mark.anyio
async def test_a_slow_listener_that_left_is_not_called_later() -> None:
    """Observable: no call is left over from a listener's rest."""
    store = AgentStore()
    heard: list[str] = []

    def listen(state: AgentState) -> None:
        heard.append(state.status)
        time.sleep(0.03)

    unsubscribe = store.subscribe(listen)
    store.set_status("sending")
    store.set_status("processing")
    unsubscribe()
    await asyncio.sleep(0.4)
    assert heard == ["sending"]


def test_a_slow_listener_outside_an_event_loop_misses_nothing() -> None:
    """Observable: where there is no run to protect, each state is told."""
    store = AgentStore()
    heard: list[str] = []

    def listen(state: AgentState) -> None:
        heard.append(state.status)
        time.sleep(0.03)

    store.subscribe(listen)
    store.set_status("sending")
    store.set_status("idle")
    assert heard == ["sending", "idle"]


def test_both_stores_can_be_observed_alike() -> None:
    """Observable: one kind of store."""
    assert isinstance(ChatStore(), Observable)
    assert isinstance(AgentStore(), Observable)
