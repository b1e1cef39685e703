"""What went through a channel, for people to read: the shapes, the rules, and the protocol of its log."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from playhead.encode import mask, scrub
from playhead.errors import StoreError

DEFAULT_MESSAGES = 100
_MAX_ERROR = 500

Direction = Literal["inbound", "outbound"]
MessageState = Literal["received", "done", "pending", "sent", "delivered", "read", "failed"]

# A state gives way only to one further on, in whatever order the news comes. That one was delivered
# is the better proof: a failure after it is that of another attempt, or of another device.
STATES: Mapping[Direction, Sequence[MessageState]] = {
    "inbound": ("received", "failed", "done"),
    "outbound": ("pending", "sent", "failed", "delivered", "read"),
}


class MessageId(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which message is meant: the one of `own_id`, or else of `channel_id`.

    Attributes:
        channel: such as "whatsapp".
        channel_id: the channel's id of the message.
        own_id: our id of an outbound message, known before it is sent.
    """

    channel: str
    direction: Direction
    channel_id: str | None = None
    own_id: str | None = None


class ChannelMessage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A message as a channel took it in or was given it.

    Attributes:
        peer: the address of the other side: who sent it, or whom it is for.
        kind: text, image, audio, document, location, or what else the channel has.
        text: what a person reads of it: its text or caption, or what was heard in it.
    """

    channel: str
    direction: Direction
    peer: str
    text: str = ""
    kind: str = "text"
    channel_id: str | None = None
    own_id: str | None = None
    tenant_id: str | None = None
    thread_id: str | None = None
    turn_id: str | None = None

    @property
    def id(self) -> MessageId:
        return MessageId(self.channel, self.direction, self.channel_id, self.own_id)


class MessageRow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """One message as it is kept. `row_id` grows with each row: it is the order, no clock is.

    `error_message` is that of a state of `failed`. Times are in milliseconds since 1970.
    """

    row_id: int
    message: ChannelMessage
    state: MessageState
    error_message: str | None = None
    created_at: int = 0
    updated_at: int = 0


class Added(NamedTuple):
    """The row of a message, and whether it is there only since now."""

    row: MessageRow
    new: bool


class MessageFilter(msgspec.Struct, frozen=True):
    """Which messages are meant: those that have all the values given here. None is any.

    `since` and `until` are milliseconds since 1970; `until` itself is not included. With
    `all_tenants`, the tenant that a query names does not matter: for whoever runs the installation.
    """

    channel: str | None = None
    direction: Direction | None = None
    peer: str | None = None
    kind: str | None = None
    state: MessageState | None = None
    thread_id: str | None = None
    turn_id: str | None = None
    since: int | None = None
    until: int | None = None
    all_tenants: bool = False


ANY_MESSAGE = MessageFilter()


class MessageLog(Protocol):
    """One row per message of a channel. Tenants never see each other.

    The channel's id of a message is unique for a tenant, a channel and a direction: a message to
    oneself has one id on both sides, and ids of two channels have nothing to do with each other.
    Each method raises `StoreError` when the log cannot be read or written, and for a state that a
    message of this direction cannot have.
    """

    async def add(self, message: ChannelMessage) -> Added:
        """Write a message, and return its row and whether it is new.

        A message whose channel's id or own id is known is not written again, whatever it says: the
        row that is there is returned, and whoever delivered it again sees by its state whether
        there is anything left to do. What is inbound begins as `received`; what is outbound as
        `pending`, or as `sent` when it has the channel's id. An inbound message without the
        channel's id, and one without any id, is refused with `StoreError`.
        """
        ...

    async def set_state(
        self,
        which: MessageId,
        state: MessageState,
        *,
        error: str | None = None,
        turn_id: str | None = None,
        tenant_id: str | None = None,
    ) -> MessageRow | None:
        """Tell what became of a message, and return its row; None when it is unknown.

        News may come in any order and more than once: inbound a message goes from `received` over
        `failed` to `done`, outbound from `pending` over `sent`, `failed` and `delivered` to `read`,
        and never back. One that failed is `sent` again only under a new id of the channel. An
        `error` is masked and cut at 500 characters; of two failures the later one is kept.

        With both ids the channel's one is kept with the row: of an outbound message it is known
        once it is sent. Where a channel gives our own id back, name it: a status may come before
        the answer to the sending, which may be lost. News of another attempt than the row's counts
        unless it is a failure. An id of the channel that is another message's is refused with
        `StoreError`. `turn_id` is the turn that took the message up.
        """
        ...

    async def find(self, which: MessageId, *, tenant_id: str | None = None) -> MessageRow | None:
        """Return the row of a message; None when it is unknown."""
        ...

    async def messages(
        self,
        which: MessageFilter = ANY_MESSAGE,
        *,
        tenant_id: str | None = None,
        limit: int = DEFAULT_MESSAGES,
        before: int | None = None,
    ) -> Sequence[MessageRow]:
        """Return the newest messages, newest first; with `before`, only those of a lower `row_id`."""
        ...

    async def delete_thread(self, thread_id: str, *, tenant_id: str | None = None) -> int:
        """Forget the messages of a thread, and return how many there were."""
        ...

    async def delete_tenant(self, tenant_id: str | None) -> int:
        """Forget the messages of a tenant, and return how many there were."""
        ...

    async def delete_before(self, created_at: int) -> int:
        """Forget the messages, of any tenant, older than a time in milliseconds since 1970.

        What is forgotten and delivered again is new: keep messages for longer than a channel
        delivers them.
        """
        ...


def clean_message(message: ChannelMessage) -> ChannelMessage:
    """Return a message as a log keeps it. Raises `StoreError` when it could not be found again."""
    check_id(message.id)
    texts = {name: getattr(message, name) for name in message.__struct_fields__}
    return replace(message, **{name: scrub(text) for name, text in texts.items() if text is not None})


def check_id(which: MessageId, state: MessageState | None = None) -> None:
    """Raise `StoreError` for a direction, a state or an id that there is not."""
    states = STATES.get(which.direction)
    if states is None:
        raise StoreError(f"A message is inbound or outbound; its direction was {which.direction!r}.")
    if state is not None and state not in states:
        raise StoreError(f"An {which.direction} message is {', '.join(states)}; its state was {state!r}.")
    if which.channel_id is None and (which.own_id is None or which.direction == "inbound"):
        raise StoreError("A message is known by the channel's id, an outbound one by its own id: give one.")


def first_state(message: ChannelMessage) -> MessageState:
    """Return the state that a message begins with."""
    return (
        "pending" if message.channel_id is None else "received" if message.direction == "inbound" else "sent"
    )


def after(
    row: MessageRow, which: MessageId, state: MessageState, error: str | None, turn_id: str | None, now: int
) -> MessageRow:
    """Return the row after news of it; the row itself when they say nothing new. See `set_state`."""
    message, order = row.message, STATES[row.message.direction]
    channel_id = message.channel_id if which.channel_id is None else scrub(which.channel_id)
    same_attempt = message.channel_id in (None, channel_id)
    told = mask(error, _MAX_ERROR) if error and state == "failed" else None
    if row.state == state == "failed":
        further = same_attempt and told not in (None, row.error_message)
    elif row.state == "failed" and state == "sent":
        further = channel_id != message.channel_id
    else:
        further = order.index(state) > order.index(row.state) and (same_attempt or state != "failed")
    if not same_attempt and not (further and state == "sent"):
        channel_id = message.channel_id
    turn_id = message.turn_id if turn_id is None else scrub(turn_id)
    if further:
        row = replace(row, state=state, error_message=told)
    elif (channel_id, turn_id) == (message.channel_id, message.turn_id):
        return row
    return replace(row, message=replace(message, channel_id=channel_id, turn_id=turn_id), updated_at=now)


def id_is_taken(which: MessageId) -> StoreError:
    """Return what is raised for a channel's id that another message has."""
    return StoreError(f"The id {which.channel_id!r} is that of another message of {which.channel!r}.")
