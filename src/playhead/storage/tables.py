"""The tables as SQL is written against them. How they come to be is in `migrations.py`.

A key is a digest of ids, so that an id of any length can be looked up through an index, and so that
the tenant None, the tenant "" and a tenant with a NUL in its name stay apart though the readable
columns beside the keys cannot tell them.
"""

import hashlib
from functools import lru_cache

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

FORMAT = 1  # of the rows of `agent_turns`; a row of a later one is kept, and not read

metadata = MetaData()
# SQLite counts rows by itself only where the type is exactly INTEGER.
_row_id = BigInteger().with_variant(Integer, "sqlite")

schema = Table("playhead_schema", metadata, Column("version", Integer, primary_key=True))

# Of a thread that was deleted a row stays that says where its events ended, and nothing else: neither
# names nor times, and no `tenant_key`.
agent_threads = Table(
    "agent_threads",
    metadata,
    Column("thread_key", Text, primary_key=True),
    Column("tenant_key", Text, nullable=False),
    Column("thread_id", Text, nullable=False),
    Column("tenant_id", Text),
    Column("last_seq", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("last_event_seq", BigInteger, nullable=False, server_default=text("0")),
    Index("agent_threads_tenant", "tenant_key"),
)

# `turn_seq` is the `seq` of the first row of the turn: a window is a range of it. `content` is text;
# of a message made of parts it is null, and they are in `content_parts`. `extra` is whatever else
# the message holds, in its wire form. JSON is text everywhere: the order of keys is kept. A row that
# an edit or a retry replaced is `replaced`: it is kept, and no longer part of the conversation.
agent_turns = Table(
    "agent_turns",
    metadata,
    Column("row_id", _row_id, primary_key=True),
    Column("thread_key", Text, ForeignKey("agent_threads.thread_key", ondelete="CASCADE"), nullable=False),
    Column("turn_key", Text, nullable=False),
    Column("message_key", Text, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("turn_seq", BigInteger, nullable=False),
    Column("id", Text, nullable=False),
    Column("turn_id", Text, nullable=False),
    Column("thread_id", Text, nullable=False),
    Column("tenant_id", Text),
    Column("step_index", BigInteger, nullable=False),
    Column("role", Text, nullable=False),
    Column("content", Text),
    Column("content_parts", Text),
    Column("tool_calls", Text),
    Column("tool_call_id", Text),
    Column("tool_name", Text),
    Column("extra", Text, nullable=False),
    Column("format", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("replaced", Integer, nullable=False, server_default=text("0")),
    UniqueConstraint("thread_key", "message_key", name="agent_turns_once"),
    UniqueConstraint("thread_key", "seq", name="agent_turns_seq"),
    Index("agent_turns_window", "thread_key", "turn_seq", "seq"),
    Index("agent_turns_turn", "turn_key", "thread_key"),
)

# One row for each message that a run begins with, or answers to calls that a run left waiting. The
# order of a thread's runs is that of `row_id`. `message`, `answers` and `context` are JSON. A run that
# somebody asked to end, wherever it is at work, is `stopping`.
agent_runs = Table(
    "agent_runs",
    metadata,
    Column("row_id", _row_id, primary_key=True),
    Column("run_key", Text, nullable=False),
    Column("thread_key", Text, ForeignKey("agent_threads.thread_key", ondelete="CASCADE"), nullable=False),
    Column("message_key", Text),
    Column("run_id", Text, nullable=False),
    Column("turn_id", Text, nullable=False),
    Column("thread_id", Text, nullable=False),
    Column("tenant_id", Text),
    Column("state", Text, nullable=False),
    Column("policy", Text, nullable=False),
    Column("message", Text),
    Column("answers", Text),
    Column("context", Text),
    Column("owner", Text, nullable=False),
    Column("absorbed_by", Text),
    Column("first_seq", BigInteger, nullable=False),
    Column("finish_reason", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("stopping", Integer, nullable=False, server_default=text("0")),
    UniqueConstraint("run_key", name="agent_runs_run"),
    UniqueConstraint("thread_key", "message_key", name="agent_runs_once"),
    Index("agent_runs_thread", "thread_key", "row_id"),
    Index("agent_runs_state", "state", "row_id"),
    Index("agent_runs_age", "created_at"),
)

# What a run showed, in wire form but for `seq`, which is a column.
agent_events = Table(
    "agent_events",
    metadata,
    Column("thread_key", Text, ForeignKey("agent_threads.thread_key", ondelete="CASCADE"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("run_key", Text, nullable=False),
    Column("event_key", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("data", Text, nullable=False),
    Column("format", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    UniqueConstraint("run_key", "event_key", name="agent_events_once"),
)

# Processes that say that they live, where no lock can tell.
agent_processes = Table(
    "agent_processes",
    metadata,
    Column("name", Text, primary_key=True),
    Column("seen_at", BigInteger, nullable=False),
)

# Calls that wait for a person or a client, by turn: the answer may come to any run of it.
agent_pending = Table(
    "agent_pending",
    metadata,
    Column("turn_key", Text, primary_key=True),
    Column("call_key", Text, primary_key=True),
    Column("thread_key", Text, ForeignKey("agent_threads.thread_key", ondelete="CASCADE"), nullable=False),
    Column("call", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("args_hash", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("answered_by", Text),
    Column("place", Integer, nullable=False),
    Index("agent_pending_thread", "thread_key"),
)

# Each stands for the beginning of a thread, up to and with the row `through_seq`.
agent_summaries = Table(
    "agent_summaries",
    metadata,
    Column("thread_key", Text, ForeignKey("agent_threads.thread_key", ondelete="CASCADE"), primary_key=True),
    Column("through_seq", BigInteger, primary_key=True),
    Column("text", Text, nullable=False),
    Column("format", Integer, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# Results of tools that were too long for a model, whole.
agent_results = Table(
    "agent_results",
    metadata,
    Column("thread_key", Text, ForeignKey("agent_threads.thread_key", ondelete="CASCADE"), primary_key=True),
    Column("result_key", Text, primary_key=True),
    Column("turn_key", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Index("agent_results_age", "created_at"),
)

ai_call_log = Table(
    "ai_call_log",
    metadata,
    Column("row_id", _row_id, primary_key=True),
    Column("tenant_key", Text, nullable=False),
    Column("thread_key", Text, nullable=False),
    Column("turn_key", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("http_status", BigInteger),
    Column("latency_ms", BigInteger),
    Column("tokens_in", BigInteger),
    Column("tokens_out", BigInteger),
    Column("cost_micro_usd", BigInteger),
    Column("error_kind", Text),
    Column("error_message", Text),
    Column("tenant_id", Text),
    Column("thread_id", Text),
    Column("turn_id", Text),
    Index("ai_call_log_tenant", "tenant_key", "row_id"),
    Index("ai_call_log_thread", "thread_key"),
    Index("ai_call_log_turn", "turn_key"),
    Index("ai_call_log_age", "created_at"),
)

# `message_key` is made of the channel's id and `own_key` of our own: an outbound message has the one
# or the other or both. Of an id that it has not there is no key, and of NULLs any number is unique.
message_log = Table(
    "message_log",
    metadata,
    Column("row_id", _row_id, primary_key=True),
    Column("tenant_key", Text, nullable=False),
    Column("thread_key", Text, nullable=False),
    Column("turn_key", Text, nullable=False),
    Column("message_key", Text),
    Column("own_key", Text),
    Column("channel", Text, nullable=False),
    Column("direction", Text, nullable=False),
    Column("peer", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("channel_id", Text),
    Column("own_id", Text),
    Column("tenant_id", Text),
    Column("thread_id", Text),
    Column("turn_id", Text),
    Column("state", Text, nullable=False),
    Column("error_message", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    UniqueConstraint("message_key", name="message_log_once"),
    UniqueConstraint("own_key", name="message_log_own"),
    Index("message_log_tenant", "tenant_key", "row_id"),
    Index("message_log_thread", "thread_key"),
    Index("message_log_turn", "turn_key"),
    Index("message_log_age", "created_at"),
)

breaker_states = Table(
    "breaker_states",
    metadata,
    Column("provider_key", Text, primary_key=True),
    Column("provider", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

# Of the media themselves nothing is here: they lie in a folder, and are known by their ids.
projects = Table(
    "projects",
    metadata,
    Column("project_key", Text, primary_key=True),
    Column("tenant_key", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("tenant_id", Text),
    Column("name", Text, nullable=False),
    Column("thread_id", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("projects_tenant", "tenant_key"),
)

project_media = Table(
    "project_media",
    metadata,
    Column("project_key", Text, ForeignKey("projects.project_key", ondelete="CASCADE"), primary_key=True),
    Column("media_key", Text, primary_key=True),
    Column("media_id", Text, nullable=False),
    Column("added_at", BigInteger, nullable=False),
    Index("project_media_media", "media_key"),
)

# `said` is what the recogniser wrote; with the times it names the line, so that an edit is never
# put on another one when the file is transcribed anew.
transcript_edits = Table(
    "transcript_edits",
    metadata,
    Column("media_key", Text, primary_key=True),
    Column("line_key", Text, primary_key=True),
    Column("start_ms", BigInteger, nullable=False),
    Column("end_ms", BigInteger, nullable=False),
    Column("said", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
)

transcript_changes = Table(
    "transcript_changes",
    metadata,
    Column("media_key", Text, primary_key=True),
    Column("change_key", Text, primary_key=True),
    Column("change_id", Text, nullable=False),
    Column("made_by", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("lines", Text, nullable=False),
)


@lru_cache(4_096)
def key_of(*ids: str | None) -> str:
    """Return 40 hex digits that stand for these ids, and for no others."""
    # ascii() is the same in every version of Python, and takes half a surrogate pair.
    return hashlib.blake2b(ascii(ids).encode(), digest_size=20).hexdigest()
