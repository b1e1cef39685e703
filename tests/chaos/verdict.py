"""What the database says in the end, against what was sent and seen."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from playhead.llm.history import normalise
from playhead.storage.engine import open_database
from playhead.storage.ledger import EventRow
from playhead.storage.sql_ledger import SQLLedger
from playhead.types import AssistantMessage
from tests.chaos.driver import Run
from tests.session.models import assert_valid


@dataclass
class Verdict:
    """Counts. Those in `must_be_zero` are faults."""

    counts: Counter[str] = field(default_factory=Counter)
    must_be_zero: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


async def judge(url: str, folder: Path, run: Run) -> Verdict:
    """Look at everything."""
    verdict = Verdict()
    counts, zero = verdict.counts, Counter[str]()
    async with await open_database(url) as database:
        ledger = SQLLedger(database)
        for thread in sorted({sent.thread for sent in run.sent}):
            events = await _events(ledger, thread)
            _judge_thread(thread, events, run, counts, zero)
            messages = [row.message for row in await ledger.turns.window(thread, turns=None)]
            ids = Counter(message.id for message in messages)
            zero["rows twice"] += sum(count - 1 for count in ids.values())
            assert_valid(normalise(messages))
            zero["answers without text"] += sum(
                isinstance(m, AssistantMessage) and not (m.content or m.tool_calls) for m in messages
            )
            for sent in [sent for sent in run.sent if sent.thread == thread]:
                zero["messages lost"] += ids[sent.id] == 0
        counts["runs left open"] = len(await ledger.runs())
        zero["runs left open"] = counts["runs left open"]
    _judge_effects(folder, counts, zero)
    zero["requests answered wrongly"] = len(run.faults)
    verdict.must_be_zero = dict(zero)
    verdict.faults = run.faults
    return verdict


async def _events(ledger: SQLLedger, thread: str) -> list[EventRow]:
    found: list[EventRow] = []
    while True:
        page = await ledger.events.after(thread, found[-1].seq if found else 0)
        if not page.rows:
            return found
        found += page.rows


def _judge_thread(
    thread: str, events: Sequence[EventRow], run: Run, counts: Counter[str], zero: Counter[str]
) -> None:
    zero["gaps in events"] += [event.seq for event in events] != list(range(1, len(events) + 1))
    told: list[Mapping[str, Any]] = [msgspec.json.decode(event.data) for event in events]
    at_work: str | None = None
    begun: list[str] = []
    answered: dict[str, list[str]] = defaultdict(list)
    for event in told:
        if event["type"] == "run_start":
            zero["interleaved runs"] += at_work is not None
            at_work = event["runId"]
            begun.append(event["runId"])
        zero["interleaved runs"] += event["runId"] != at_work
        if event["type"] == "user_message":
            answered.setdefault(event["message"]["id"], []).append(event["runId"])
        if event["type"] == "run_end":
            at_work = None
            zero["runs that ended as an error"] += event["result"]["finishReason"] != "final"
        if event["type"] == "tool_result" and "unknown" in (event["result"].get("error") or ""):
            counts["told that an outcome is unknown"] += 1
    zero["runs that began twice"] += len(begun) - len(set(begun))
    texts = {e["runId"]: str(e["result"].get("text", "")).split() for e in told if e["type"] == "run_end"}
    order = []
    for sent in [sent for sent in run.sent if sent.thread == thread]:
        runs = answered.get(sent.id, [])
        kind = "steering seen" if sent.policy == "steer" else "answered"
        counts[f"{kind} once"] += len(runs) == 1
        zero[f"{kind} twice"] += len(runs) > 1
        zero[f"{kind} never"] += not runs
        zero["answers that leave a message out"] += sum(sent.id not in texts.get(one, ()) for one in runs)
        if sent.policy == "queue" and runs:
            order.append(begun.index(runs[0]))
    zero["threads out of order"] += order != sorted(order)
    table = [(event.seq, event.type) for event in events if event.type != "text_delta"]
    zero["readers that differ from the table"] += run.seen.get(thread, []) != table
    zero["texts read that differ from the answer"] += sum(
        run.texts.get(one, "").split() != words for one, words in texts.items()
    )


def _judge_effects(folder: Path, counts: Counter[str], zero: Counter[str]) -> None:
    effects = folder / "effects"
    lines = [line.split() for line in effects.read_text().splitlines()] if effects.exists() else []
    begun = Counter((name, key) for name, what, key in lines if what == "start")
    counts["tools finished"] = sum(what == "end" for _, what, _ in lines)
    counts["tools run again that may be"] = sum(n - 1 for (name, _), n in begun.items() if name != "never")
    zero["`never` tools run twice"] = sum(n - 1 for (name, _), n in begun.items() if name == "never")
