"""The panel's reducer by itself: what is told, in any split and however often, gives the same state."""

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from tests.server.panels import Stage, held, staged
from tests.server.support import all_frames, ask

pytestmark = pytest.mark.anyio

REDUCE = """async (logs) => {
  const { EMPTY, reduce } = await import("/panel/reducer.js");
  const freeze = (value) => {
    if (value && typeof value === "object" && !Object.isFrozen(value)) {
      Object.freeze(value);
      Object.values(value).forEach(freeze);
    }
    return value;
  };
  return logs.map((log) => log.reduce((state, event) => freeze(reduce(state, freeze(event))), EMPTY));
}"""


async def log_of(stage: Stage, thread: str, said: Sequence[str]) -> list[dict[str, Any]]:
    """What the server tells of some messages: texts, calls that wait, a call that fails."""
    path = f"/api/agent/threads/{thread}"
    events: list[tuple[str, Any]] = []
    for text in said:
        events += await all_frames(stage.client, "POST", f"{path}/runs", json={"message": text})
    _, view = await ask(stage.client, "GET", path)
    for one in view.get("pending", []):
        body = {"callId": one["call"]["id"], "argsHash": one["argsHash"], "approved": False}
        answer = f"/api/agent/runs/{one['runId']}/tool-results"
        events += await all_frames(stage.client, "POST", answer, json=body)
    return [data for kind, data in events if kind != "comment"]


def split(events: Sequence[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """The same, texts cut and joined at other places, and some of it told again from an earlier place."""
    pieces: list[dict[str, Any]] = []
    for event in events:
        if event["type"] not in ("text_delta", "reasoning_delta"):
            pieces.append(event)
            continue
        last = pieces[-1] if pieces else {}
        if last.get("messageId") == event["messageId"] and chance.random() < 0.4:
            pieces[-1] = {**last, "text": last["text"] + event["text"]}
            continue
        at = chance.randrange(len(event["text"]) + 1)
        for start, text in ((0, event["text"][:at]), (at, event["text"][at:])):
            if text:
                pieces.append({**event, "text": text, "offset": event.get("offset", 0) + start})
    told: list[dict[str, Any]] = []
    at = 0
    while at < len(pieces):
        told.append(pieces[at])
        at += 1
        if chance.random() < 0.05:
            # A stream that is resumed tells what is recorded: of attempts, nothing.
            again = pieces[chance.randrange(at) : at]
            told += [event for event in again if event["type"] not in ("attempt", "tool_call_delta")]
    return told


async def test_the_same_events_in_any_split_give_the_same_state(browser: Browser, tmp_path: Path) -> None:
    async with staged(tmp_path) as stage:
        stage.puppet.plays |= {
            "talk": ["naïve 漢字 🎬 👩‍👩‍👧 " * 20],
            "work": [[("break_it", {"what": "knife"}), ("list_all", {"count": 3})], "So it is. " * 9],
            "ask": [[("publish_video", {"title": "x"})], "As you like."],
        }
        events = await log_of(stage, "t", ["talk", "work", "ask"])
        assert {"tool_result", "run_paused", "text_delta"} <= {event["type"] for event in events}
        chance = random.Random(7)
        logs = [events, *(split(events, chance) for _ in range(40))]
        async with stage.page(browser) as page:
            first, *others = await page.evaluate(REDUCE, logs)
            assert [item["kind"] for item in first["items"]].count("tool") == 3
            assert [item["state"] for item in first["items"] if item["kind"] == "tool"] == [
                "failed",
                "done",
                "denied",
            ]
            assert (first["runs"], first["busy"]) == ([], None)
            wrong = [other for other in others if json.dumps(other) != json.dumps(first)]
            assert wrong == []


async def test_a_reload_shows_what_was_shown(browser: Browser, tmp_path: Path) -> None:
    """The thread as it is read, with the events from its place on, is what the events alone gave."""
    async with staged(tmp_path) as stage:
        stage.puppet.plays |= {
            "work": [[("break_it", {"what": "knife"})], "So it is."],
            "hold": [held(stage, "half", " done")],
        }
        events = await log_of(stage, "t", ["work"])
        run = asyncio.create_task(log_of(stage, "t", ["hold"]))
        for _ in range(3):
            _, view = await ask(stage.client, "GET", "/api/agent/threads/t")
        stage.go.set()
        events += await run
        late = [event for event in events if event.get("seq", view["seq"]) >= view["seq"]]
        async with stage.page(browser) as page:
            whole, again = await page.evaluate(REDUCE, [events, [{"type": "load", "view": view}, *late]])
        keep = ("kind", "id", "text", "state", "result", "error", "content")
        shown = [[{k: item.get(k) for k in keep} for item in one["items"]] for one in (whole, again)]
        assert shown[0] == shown[1]
