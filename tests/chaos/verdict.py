"""What is counted in the end, from the tables, the effects of the tools, and what readers saw."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from playhead.session.shown import Shown
from playhead.storage.ledger import EventRow, RunRow, Thread
from playhead.storage.sql_ledger import SQLLedger
from playhead.types import ChatMessage
from tests.chaos.model import NAME, done
from tests.chaos.people import Reader, Sender
from tests.session.clients import Client
from tests.support.invariants import assert_paired

Told: TypeAlias = dict[str, Any]


@dataclass
class Verdict:
    """What was counted. `faults` says in words what must not be."""

    sent: int = 0
    answered_once: int = 0
    steered_once: int = 0
    tools_finished: int = 0
    tools_again: int = 0
    unknown: int = 0
    attempts: int = 0
    reconnects: int = 0
    sent_again: int = 0
    faults: dict[str, list[str]] = field(default_factory=dict)

    def blame(self, kind: str, what: str) -> None:
        """Note a fault."""
        self.faults.setdefault(kind, []).append(what)

    def count(self, kind: str) -> int:
        """Return how many faults of a kind there are."""
        return len(self.faults.get(kind, ()))


@dataclass
class Conversation:
    """All that there is of one thread in the end."""

    thread: str
    sender: Sender
    readers: Sequence[Reader]
    events: Sequence[tuple[EventRow, Told]]
    runs: Mapping[str, RunRow]
    messages: Sequence[ChatMessage]


async def conversation(
    ledger: SQLLedger, thread: str, sender: Sender, readers: Sequence[Reader]
) -> Conversation:
    """Read all of a thread."""
    events: list[EventRow] = []
    while (page := await ledger.events.after(thread, events[-1].seq if events else 0)).rows:
        events.extend(page.rows)
    states: Any = ("queued", "running", "paused", "ended", "absorbed")
    runs = await ledger.runs(Thread(thread), states=states, limit=100_000)
    rows = await ledger.turns.window(thread, turns=None)
    told = [(row, msgspec.json.decode(row.data)) for row in events]
    messages = [row.message for row in rows]
    return Conversation(thread, sender, readers, told, {run.run_id: run for run in runs}, messages)


def judge(verdict: Verdict, talk: Conversation) -> None:
    """Count what became of one thread."""
    _judge_events(verdict, talk)
    _judge_messages(verdict, talk)
    _judge_history(verdict, talk)
    _judge_readers(verdict, talk)


def _judge_events(verdict: Verdict, talk: Conversation) -> None:
    seqs = [row.seq for row, _ in talk.events]
    if seqs != list(range(1, len(seqs) + 1)):
        verdict.blame("gaps", f"{talk.thread}: {_breaks(seqs)}")
    at_work: str | None = None
    ended: set[str] = set()
    for row, event in talk.events:
        run_id = event["runId"]
        if row.type == "run_start" and at_work is None and run_id not in ended:
            at_work = run_id
        elif run_id != at_work or row.type == "run_start":
            verdict.blame("interleaved", f"{talk.thread}: {row.seq} {row.type} of {run_id} in {at_work}")
        if row.type == "run_end":
            at_work = None
            ended.add(run_id)
        verdict.attempts += row.type == "attempt"
        verdict.unknown += row.type == "tool_result" and "unknown" in (event["result"].get("error") or "")


def _breaks(seqs: Sequence[int]) -> list[tuple[int, int]]:
    return [(a, b) for a, b in zip([0, *seqs], seqs, strict=False) if b != a + 1]


def _judge_messages(verdict: Verdict, talk: Conversation) -> None:
    asked_in: dict[str, list[str]] = {}
    ends: dict[str, list[Told]] = {}
    for row, event in talk.events:
        if row.type == "user_message":
            asked_in.setdefault(event["message"]["id"], []).append(event["runId"])
        elif row.type == "run_end":
            ends.setdefault(event["runId"], []).append(event["result"])
    stored = {run.message.id: run for run in talk.runs.values() if run.message is not None}
    in_order: list[int] = []
    for name, policy in talk.sender.policies.items():
        verdict.sent += 1
        run = stored.get(name)
        if name not in talk.sender.acknowledged or run is None:
            verdict.blame("lost", f"{name}: {run}")
            continue
        steered = run.state == "absorbed"
        kind = "steering" if steered else "answers"
        answers = [(by, end) for by in asked_in.get(name, ()) for end in ends.get(by, ())]
        finals = [end for _, end in answers if end["finishReason"] == "final" and name in _named(end)]
        if len(answers) == 1 == len(finals) and answers[0][0] == (run.absorbed_by or run.run_id):
            verdict.steered_once += steered
            verdict.answered_once += not steered
        else:
            word = "doubled" if len(answers) > 1 else "missing"
            verdict.blame(f"{kind} {word}", f"{name} ({policy}, {run.state}): {answers}")
        if not steered and asked_in.get(name):
            in_order.append(_place(talk, asked_in[name][0]))
    if in_order != sorted(in_order):
        verdict.blame("out of order", f"{talk.thread}: {in_order}")


def _named(end: Told) -> list[str]:
    return NAME.findall(end["text"])


def _place(talk: Conversation, run_id: str) -> int:
    return next(row.seq for row, event in talk.events if event["runId"] == run_id)


def _judge_history(verdict: Verdict, talk: Conversation) -> None:
    try:
        assert_paired(talk.messages)
    except AssertionError as error:
        verdict.blame("histories refused", f"{talk.thread}: {error}")


def _judge_readers(verdict: Verdict, talk: Conversation) -> None:
    table = Client()
    texts: dict[str, str] = {}
    for row, event in talk.events:
        table.take(Shown.of_row(row))
        if row.type == "step_end":
            said = event["result"]["assistantMessage"]
            texts[said["id"]] = said["content"]
    if table.texts != texts:
        said_whole = Client()
        said_whole.texts, said_whole.recorded = texts, table.recorded
        verdict.blame(
            "texts that differ from what was said", f"{talk.thread}: {_difference(table, said_whole)}"
        )
    for reader in talk.readers:
        verdict.reconnects += max(reader.connections - 1, 0)
        if reader.fault:
            verdict.blame("readers that differ", f"{talk.thread}: {reader.fault}")
        elif reader.client.known != table.known:
            verdict.blame("readers that differ", f"{talk.thread}: {_difference(reader.client, table)}")


def _difference(has: Client, should: Client) -> str:
    if has.recorded != should.recorded:
        pairs = zip(has.recorded, should.recorded, strict=False)
        first = next((pair for pair in pairs if pair[0] != pair[1]), None)
        return f"it has {len(has.recorded)} of {len(should.recorded)} events; the first that differs: {first}"
    texts = {id: (has.texts.get(id), should.texts.get(id)) for id in {**has.texts, **should.texts}}
    return f"texts, had and to be had: { {id: pair for id, pair in texts.items() if pair[0] != pair[1]} }"


def judge_effects(verdict: Verdict, effects: Sequence[Told], talks: Sequence[Conversation]) -> None:
    """Count what the tools did, and hold it against what was said of it."""
    starts = Counter(one["call"] for one in effects if one["what"] == "start")
    ends = Counter(one["call"] for one in effects if one["what"] == "end")
    kinds = {one["call"]: one["tool"] for one in effects if one["what"] == "start"}
    keys: dict[str, set[str]] = {}
    for one in effects:
        if one["what"] == "start":
            keys.setdefault(one["call"], set()).add(one["key"])
        elif one["what"] == "refused":
            verdict.blame("histories refused", one["why"])
    verdict.tools_finished = sum(ends.values())
    for call, times in starts.items():
        if times > 1 and kinds[call] == "never":
            verdict.blame("`never` run twice", call)
        verdict.tools_again += times > 1
        if len(keys[call]) > 1:
            verdict.blame("keys that differ", call)
    for talk in talks:
        for row, event in talk.events:
            result = event.get("result", {})
            if row.type == "tool_result" and result.get("text") == done(result["toolCallId"]):
                if not ends[result["toolCallId"]]:
                    verdict.blame("results of nothing", result["toolCallId"])
            elif row.type == "tool_result" and "unknown" not in (result.get("error") or ""):
                verdict.blame("results that are wrong", str(result))
