// The page: a thread on the left hand of the server, drawn from its events.

import { answer, element, events } from "./sse.js";
import { RunView, ToolCard } from "./run.js";
import { context, loadMedia, setUpMedia } from "./media.js";

const get = (id) => document.getElementById(id);
const log = get("log");
const input = get("message");
const RETRIES = 5;

let thread = localStorage.getItem("playhead.thread") ?? newThread();
let runId = null;

function newThread() {
  const id = crypto.randomUUID();
  localStorage.setItem("playhead.thread", id);
  return id;
}

function add(...nodes) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  get("hint").hidden = true;
  log.append(...nodes);
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function fail(text) {
  get("chat-error").textContent = text;
  get("chat-error").hidden = !text;
}

function busy(id) {
  runId = id;
  get("stop").hidden = id === null;
  get("send").disabled = id !== null;
}

async function send(text) {
  fail("");
  busy("");
  const view = new RunView();
  const said = element("p", { className: "user" }, text);
  add(said, view.node);
  try {
    const response = await fetch(`api/agent/threads/${encodeURIComponent(thread)}/runs`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
      body: JSON.stringify({ message: { id: crypto.randomUUID(), content: text }, context: context() }),
    });
    if (!response.ok) await answer(response);
    await follow(view, response.headers.get("Run-Id"), response);
  } catch (error) {
    fail(error.message);
    if (!runId) {
      // Nothing was started: the text goes back to where it can be sent again.
      said.remove();
      view.node.remove();
      input.value ||= text;
    }
  } finally {
    get("status").textContent = "";
    busy(null);
    input.focus();
  }
}

// A stream that breaks is not the end of a run: it is told again, from its first event.
async function follow(view, id, response) {
  busy(id);
  for (let attempt = 0; ; attempt++) {
    try {
      response ??= await fetch(`api/agent/runs/${encodeURIComponent(id)}/events`);
      if (!response.ok) await answer(response);
      view.reset();
      for await (const event of events(response)) {
        draw(view, event);
        attempt = 0;
      }
      if (view.ended) return;
    } catch (error) {
      if (attempt >= RETRIES) throw error;
    }
    if (attempt >= RETRIES) throw new Error("The connection was lost. Reload the page to see the rest.");
    response = null;
    get("status").textContent = "Connection lost. Trying again…";
    await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
  }
}

function draw(view, event) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  view.take(event);
  get("status").textContent = view.status;
  if (atEnd) log.scrollTop = log.scrollHeight;
}

async function loadThread() {
  try {
    const view = await answer(await fetch(`api/agent/threads/${encodeURIComponent(thread)}`));
    let messages = view.messages;
    if (view.activeRun) messages = messages.slice(0, messages.findLastIndex(({ role }) => role === "user") + 1);
    const cards = new Map();
    for (const message of messages) drawMessage(message, cards);
    if (!view.activeRun) return;
    const run = new RunView();
    add(run.node);
    await follow(run, view.activeRun.runId, null);
  } catch (error) {
    fail(error.message);
  } finally {
    get("status").textContent = "";
    busy(null);
  }
}

function drawMessage(message, cards) {
  if (message.role === "tool") {
    const text = message.content;
    const card = cards.get(message.toolCallId);
    if (message.isError) card?.finish(null, text);
    else card?.finish(readJson(text), undefined);
    return;
  }
  const text = typeof message.content === "string" ? message.content : message.content.map((p) => p.text ?? "").join(" ");
  if (text) add(element("p", { className: message.role }, text));
  for (const call of message.toolCalls ?? []) {
    const card = new ToolCard(call.name);
    cards.set(call.id, card);
    add(card.node);
  }
}

function readJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

get("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = input.value.trim();
  if (!text || runId !== null) return;
  input.value = "";
  send(text);
});
input.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  get("composer").requestSubmit();
});
get("suggestion").addEventListener("click", () => runId === null && send("Transcribe this"));
get("stop").addEventListener("click", async () => {
  if (!runId) return;
  try {
    await answer(await fetch(`api/agent/runs/${encodeURIComponent(runId)}/cancel`, { method: "POST" }));
  } catch (error) {
    fail(error.message);
  }
});
get("new-chat").addEventListener("click", () => {
  newThread();
  location.reload();
});

setUpMedia();
loadMedia();
loadThread();
