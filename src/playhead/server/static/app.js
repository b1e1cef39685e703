// The page: one thread of the server, drawn from its events.

import { answer, element, events } from "./sse.js";
import { RunView } from "./run.js";
import { context, loadMedia, setUpMedia } from "./media.js";

const get = (id) => document.getElementById(id);
const log = get("log");
const input = get("message");
const RETRIES = 5;
const THREAD = "playhead.thread";

let thread = localStorage.getItem(THREAD) ?? newThread();
let runId = null; // "" while a run is being asked for

function newThread() {
  const id = crypto.randomUUID();
  localStorage.setItem(THREAD, id);
  return id;
}

const threadUrl = () => `api/agent/threads/${encodeURIComponent(thread)}`;
const runUrl = (id, what) => `api/agent/runs/${encodeURIComponent(id)}/${what}`;

// Whoever reads further up is not pulled down by what is added below.
function keepingPlace(change) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function fail(text) {
  get("chat-error").textContent = text;
  get("chat-error").hidden = !text;
}

function busy(id) {
  runId = id;
  get("stop").hidden = !id;
  get("send").disabled = id !== null;
  get("hint").hidden = true;
  if (id === null) get("status").textContent = "";
}

function open(view, text) {
  keepingPlace(() => log.append(...(text ? [element("p", { className: "user" }, text)] : []), view.node));
}

async function send(text) {
  fail("");
  busy("");
  const view = new RunView();
  open(view, text);
  try {
    const response = await fetch(`${threadUrl()}/runs`, {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
      body: JSON.stringify({ message: { id: crypto.randomUUID(), content: text }, context: context() }),
    });
    if (!response.ok) await answer(response);
    await follow(view, response.headers.get("Run-Id"), response);
  } catch (error) {
    fail(error.message);
    if (!runId) {
      // Nothing was begun: the text goes back to where it can be sent again.
      view.node.previousSibling.remove();
      view.node.remove();
      input.value ||= text;
    }
  } finally {
    busy(null);
    input.focus();
  }
}

// A stream that breaks is not the end of a run: it is told again, from its first event.
async function follow(view, id, response) {
  busy(id);
  for (let attempt = 0; !view.ended; attempt++) {
    try {
      response ??= await fetch(runUrl(id, "events"));
      if (!response.ok) await answer(response);
      view.reset();
      for await (const event of events(response)) {
        keepingPlace(() => view.take(event));
        get("status").textContent = view.status;
        attempt = 0;
      }
    } catch (error) {
      if (attempt >= RETRIES) throw error;
    }
    if (view.ended) return;
    if (attempt >= RETRIES) throw new Error("The connection was lost. Reload the page to see the rest.");
    response = null;
    get("status").textContent = "Connection lost. Trying again…";
    await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
  }
}

async function loadThread() {
  try {
    const { messages, activeRun } = await answer(await fetch(threadUrl()));
    const last = activeRun ? messages.findLastIndex(({ role }) => role === "user") + 1 : messages.length;
    let view = null;
    for (const message of messages.slice(0, last)) {
      if (message.role === "user") open((view = new RunView()), textOf(message.content));
      else view?.takeMessage(message);
    }
    get("hint").hidden = messages.length > 0;
    if (activeRun) await follow(view, activeRun.runId, null);
  } catch (error) {
    fail(error.message);
  } finally {
    if (runId) busy(null);
  }
}

const textOf = (content) => (typeof content === "string" ? content : content.map((part) => part.text ?? "").join(" "));

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
get("stop").addEventListener("click", () => {
  if (runId) fetch(runUrl(runId, "cancel"), { method: "POST" }).then(answer).catch((error) => fail(error.message));
});
get("new-chat").addEventListener("click", () => {
  thread = newThread();
  location.reload();
});

setUpMedia();
loadMedia();
loadThread();
