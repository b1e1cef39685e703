// A thread, drawn from its messages and its events. Everything in it has an id: what is told twice, as
// after a reload or a lost connection, is drawn once.
// Text is added as text, never as markup: a model or a file's author wrote it.

import { ToolCard } from "./cards.js";
import { element } from "./sse.js";

const NOTES = { cancelled: "Stopped.", max_steps: "Stopped: the limit of steps was reached." };

export class Thread {
  // `decide(pending, approved)` answers a call that waits for a person; `giveBack(text)` takes what was
  // sent from here and was stopped before its turn.
  constructor(log, decide, giveBack) {
    this.log = log;
    this.decide = decide;
    this.giveBack = giveBack;
    this.queue = element("div", { className: "queue" });
    this.kept = [...log.children, this.queue];
    log.append(this.queue);
    this.waiting = new Map();
    this.clear();
  }

  // What was sent from here and not heard of yet stays.
  clear() {
    for (const node of [...this.log.children]) if (!this.kept.includes(node)) node.remove();
    this.first = null;
    this.said = new Set();
    this.texts = new Map();
    this.cards = new Map();
    this.runs = new Set(); // those at work: a run that is stopped in the queue begins only to end
    this.ended = new Set();
    this.status = "";
  }

  load({ messages, activeRun, waiting = [], pending = [] }) {
    this.clear();
    for (const message of messages) this.message(message);
    if (activeRun) this.runs.add(activeRun.runId);
    const open = new Set(pending.map(({ call }) => call.id));
    if (!activeRun) this.cards.forEach((card, id) => open.has(id) || card.close());
    this.ask(pending);
    for (const { runId, message } of waiting) this.wait(message, { runId });
  }

  // Is it what is drawn here? A thread that was deleted begins anew.
  continues({ messages }) {
    return this.first !== null && messages[0]?.id === this.first;
  }

  get empty() {
    return this.first === null && this.waiting.size === 0;
  }

  // What Stop stops: the run at work, else the one that is to be next.
  get stoppable() {
    const [active] = this.runs;
    return active ?? [...this.waiting.values()].find(({ runId }) => runId)?.runId ?? null;
  }

  take(event) {
    const { runId, step = 0 } = event;
    switch (event.type) {
      case "run_start":
        this.runs.add(runId);
        if (this.runs.size > 1) break;
        this.status = "Thinking…";
        this.cards.forEach((card) => card.resume());
        break;
      case "user_message":
        this.user(event.message);
        break;
      case "step_start":
        this.status = "Thinking…";
        break;
      case "attempt":
        this.void(`${runId} ${step}`);
        break;
      case "text_delta":
        this.status = "";
        this.show(this.text(event.messageId, `${runId} ${step}`).add(event.text, event.offset ?? 0));
        break;
      case "tool_call_start":
        this.card(event.callId, event.name, `${runId} ${step}`);
        break;
      case "tool_call":
        this.status = "Working…";
        this.card(event.call.id, event.call.name).place = null;
        break;
      case "tool_progress":
        this.cards.get(event.callId)?.progress(event.fraction, event.text);
        break;
      case "tool_result":
        this.card(event.result.toolCallId, event.result.name).finish(event.result.result, event.result.error);
        break;
      case "step_end":
        this.assistant(event.result.assistantMessage);
        break;
      case "run_end":
      case "run_paused":
        this.end(runId, event.result);
    }
  }

  message(message) {
    const { role, content, toolCallId, toolName, isError } = message;
    if (role === "user") this.user(message);
    else if (role === "assistant") this.assistant(message);
    else if (role === "tool") {
      this.card(toolCallId, toolName).finish(isError ? null : parsed(content), isError ? content : null);
    }
  }

  user({ id, content }) {
    if (this.said.has(id)) return;
    this.said.add(id);
    this.first ??= id;
    const node = this.waiting.get(id)?.node ?? bubble(content);
    this.waiting.delete(id);
    delete node.dataset.state;
    this.add(node);
  }

  assistant({ id, content, toolCalls = [] }) {
    this.show(this.text(id, null).finish(content));
    for (const call of toolCalls) this.card(call.id, call.name).place = null;
  }

  // A message that is not part of the conversation yet.
  wait({ id, content }, { runId = null, state = runId && this.runs.size ? "Waits for its turn" : "" } = {}) {
    if (this.said.has(id)) return;
    if (!this.waiting.has(id)) {
      const node = bubble(content);
      this.queue.append(node);
      this.waiting.set(id, { node, mine: !runId });
    }
    const held = this.waiting.get(id);
    held.runId = runId;
    held.node.dataset.state = state;
  }

  // It will not be said.
  withdraw(id) {
    const { node, mine } = this.waiting.get(id) ?? {};
    node?.remove();
    this.waiting.delete(id);
    if (mine) this.giveBack(node.textContent);
  }

  text(id, place) {
    if (!this.texts.has(id)) this.texts.set(id, new Text(place));
    return this.texts.get(id);
  }

  show({ node }) {
    if (!node.textContent) node.remove();
    else if (!node.isConnected) this.add(node);
  }

  card(id, name, place = null) {
    if (!this.cards.has(id)) {
      const card = new ToolCard(name);
      card.place = place;
      this.cards.set(id, card);
      this.add(card.node);
    }
    return this.cards.get(id);
  }

  ask(pending) {
    for (const one of pending) this.cards.get(one.call.id)?.ask(one, (approved) => this.decide(one, approved));
  }

  get asking() {
    return [...this.cards.values()].some((card) => card.asking);
  }

  add(node) {
    this.queue.before(node);
  }

  // What was shown of this step by an attempt that failed does not count.
  void(place) {
    for (const shown of [this.texts, this.cards]) {
      for (const [id, { node, place: its }] of shown) {
        if (its !== place) continue;
        node.remove();
        shown.delete(id);
      }
    }
  }

  end(runId, { finishReason, stopReason, errorMessage, pending = [] }) {
    this.runs.delete(runId);
    for (const [id, held] of [...this.waiting]) if (held.runId === runId) this.withdraw(id);
    if (this.runs.size || this.ended.has(runId)) return;
    this.ended.add(runId);
    this.status = "";
    const open = new Set(pending.map(({ id }) => id));
    this.cards.forEach((card, id) => (open.has(id) ? card.wait() : card.close()));
    this.texts.forEach((text) => text.rest());
    const failed = finishReason === "error";
    const cut = stopReason === "length" ? "The answer was cut at the output limit." : "";
    const note = failed ? (errorMessage ?? "The run failed.") : (NOTES[finishReason] ?? cut);
    if (note) this.add(element("p", { className: failed ? "note error" : "note" }, note));
  }
}

class Text {
  constructor(place) {
    this.place = place;
    this.length = 0;
    this.whole = false;
    this.node = element("p", { className: "assistant", ariaBusy: "true" });
  }

  add(text, offset) {
    const characters = [...text]; // the server counts characters, and not halves of them
    const fresh = characters.slice(Math.max(0, this.length - offset)).join("");
    if (this.whole || !fresh) return this;
    this.node.append(fresh);
    this.length = offset + characters.length;
    return this;
  }

  finish(content) {
    this.whole = true;
    this.place = null;
    this.rest();
    if (this.node.textContent !== content) this.node.textContent = content;
    return this;
  }

  rest() {
    this.node.ariaBusy = null;
  }
}

const bubble = (content) => element("p", { className: "user" }, textOf(content));
const textOf = (content) => (typeof content === "string" ? content : content.map((part) => part.text ?? "").join(" "));

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
