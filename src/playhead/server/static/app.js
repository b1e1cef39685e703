// The page: one thread of the server, followed for as long as the page is open.

import { untilDone } from "./again.js";
import { answer, frames } from "./sse.js";
import { clientTools, currentThread, loadMedia, newThread, pageContext, setUpMedia } from "./media.js";
import { Thread } from "./thread.js";

const get = (id) => document.getElementById(id);
const log = get("log");
const input = get("message");
const LOST = "Connection lost. Trying again…";

const threadId = currentThread();
const OUTBOX = `playhead.outbox.${threadId}`;
const outbox = JSON.parse(sessionStorage.getItem(OUTBOX) ?? "[]"); // what a reload must not lose
const thread = new Thread(log, decide, giveBack);
let after = null; // the id of the last event that came
let lost = false;
let refreshes = 0;
const executed = new Set();
let sending = Promise.resolve();

const threadUrl = (what = "") => `api/agent/threads/${encodeURIComponent(threadId)}${what}`;
const runUrl = (id, what) => `api/agent/runs/${encodeURIComponent(id)}/${what}`;
const read = async (url, signal) => answer(await fetch(url, { signal }));

async function post(url, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return answer(await fetch(url, { method: "POST", headers, body: JSON.stringify(body), signal }));
}

// Whoever reads further up is not pulled down by what is added below.
function draw(change) {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  get("stop").hidden = !thread.stoppable;
  get("hint").hidden = !thread.empty;
  get("status").textContent = lost ? LOST : thread.status;
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function fail(text) {
  get("chat-error").textContent = text;
  get("chat-error").hidden = !text;
}

const isLost = (now) => draw(() => (lost = now));

// Where the stream breaks it goes on: what came is known by its ids, so nothing is lost and nothing doubled.
async function follow(signal, heard) {
  const view = await read(threadUrl(), signal);
  if (after === null || !thread.continues(view)) {
    after = String(view.seq);
    draw(() => thread.load(view));
  } else {
    draw(() => thread.ask(view.pending ?? []));
  }
  execute(view.pending ?? []);
  const response = await fetch(threadUrl(`/events?after=${after}`), { signal });
  if (!response.ok) await answer(response);
  isLost(false);
  for await (const { id, event } of frames(response, heard)) {
    const changed = event.type === "run_paused" || (event.type === "run_start" && thread.asking);
    draw(() => thread.take(event));
    after = id ?? after;
    if (changed) refreshPending();
  }
  throw new Error("A thread has no end: the server is stopping.");
}

// What must be named in an answer is not part of the events.
async function refreshPending() {
  const mine = ++refreshes;
  const { pending = [] } = await read(threadUrl()).catch(() => ({}));
  if (mine === refreshes) draw(() => thread.ask(pending));
  execute(pending);
}

// The tools of the page itself. Another tab may have answered before: then it was no less answered.
function execute(pending) {
  for (const { runId, call, kind, argsHash } of pending) {
    const work = clientTools[call.name];
    if (kind === "approval" || !work || executed.has(call.id)) continue;
    executed.add(call.id);
    const said = (more) => post(runUrl(runId, "tool-results"), { callId: call.id, argsHash, ...more });
    work(call.args)
      .then((result) => said({ result }), (error) => said({ error: error.message }))
      .catch(() => executed.delete(call.id));
  }
}

async function decide({ runId, call, argsHash }, approved) {
  await post(runUrl(runId, "tool-results"), { callId: call.id, argsHash, approved });
  input.focus();
}

function send(text) {
  const body = { message: { id: crypto.randomUUID(), content: text }, context: pageContext() };
  fail("");
  outbox.push(body);
  submit(body);
  log.scrollTop = log.scrollHeight;
  input.focus();
}

function submit(body) {
  keepOutbox();
  draw(() => thread.wait(body.message));
  sending = sending.then(() => deliver(body)); // in the order in which they were written
}

function keepOutbox() {
  sessionStorage.setItem(OUTBOX, JSON.stringify(outbox));
}

// With its id, a message is said once, however often it is sent.
async function deliver(body) {
  const { message } = body;
  try {
    const { runId } = await untilDone(
      (signal) => post(threadUrl("/runs"), body, signal),
      () => draw(() => thread.wait(message, { state: "Not sent yet" })),
    );
    draw(() => thread.wait(message, { runId }));
  } catch (error) {
    draw(() => thread.withdraw(message.id));
    fail(error.message);
  }
  outbox.splice(outbox.indexOf(body), 1);
  keepOutbox();
}

// To where it can be sent again.
function giveBack(text) {
  input.value = input.value ? `${text}\n${input.value}` : text;
}

get("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = input.value.trim();
  if (!text) return;
  input.value = "";
  send(text);
});
input.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  get("composer").requestSubmit();
});
get("suggestion").addEventListener("click", () => send("Transcribe this"));
get("stop").addEventListener("click", () => {
  const id = thread.stoppable;
  if (id) post(runUrl(id, "cancel")).catch((error) => fail(error.message));
  input.focus();
});
get("new-chat").addEventListener("click", () => {
  newThread().then(() => location.reload(), (error) => fail(error.message));
});
document.addEventListener("ask", ({ detail }) => send(detail));

setUpMedia();
loadMedia();
outbox.forEach(submit);
untilDone(follow, () => isLost(true)).catch((error) => fail(error.message));
