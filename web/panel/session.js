// One thread of the server: what is told makes the state, what is done here goes to the server.

import { Refusal, frames } from "./connection.js";
import { keep, newId, recall } from "./keep.js";
import { EMPTY, continues, isOpen, reduce, stoppable } from "./reducer.js";

export class Session {
  constructor(id, connection, host) {
    this.id = id;
    this.connection = connection;
    this.host = host;
    this.state = EMPTY;
    this.after = null;
    this.refreshes = 0;
    this.sending = Promise.resolve();
    this.mine = new Set();
    this.taken = new Set();
    this.outbox = recall("sessionStorage", this.key("outbox"), []); // what a reload must not lose
    this.allowed = new Set(recall("sessionStorage", this.key("allowed"), []));
  }

  key(what) {
    return `playhead.${what}.${this.id}`;
  }

  url(what = "") {
    return `api/agent/threads/${encodeURIComponent(this.id)}${what}`;
  }

  runUrl(id, what) {
    return `api/agent/runs/${encodeURIComponent(id)}/${what}`;
  }

  open() {
    this.outbox.forEach((body) => this.submit(body));
    this.follow();
  }

  follow() {
    const lost = (tries) => this.host.line(tries ? "lost" : "gone");
    this.connection
      .untilDone((signal, heard) => this.listen(signal, heard), lost)
      .catch((error) => this.host.line("refused", error));
  }

  // Where the stream breaks it goes on; what came is known by its ids.
  async listen(signal, heard) {
    const view = await this.connection.read(this.url(), signal);
    if (this.after === null || !continues(this.state, view)) {
      this.after = String(view.seq);
      this.anewRead = true;
      this.apply({ type: "load", view });
    } else {
      this.apply({ type: "sync", view });
    }
    const headers = { "Last-Event-ID": this.after, Accept: "text/event-stream" };
    const response = await this.connection.ask(this.url("/events"), { signal, headers });
    const events = frames(response, heard);
    if (response.ok) this.host.line("live");
    for await (const { id, event } of events) this.hear(event, id);
    throw new Error("A thread has no end: the server is stopping.");
  }

  hear(event, id) {
    const asked = event.type === "run_start" && this.state.items.some(({ ask }) => ask);
    const foreign = event.type === "user_message" && this.state.first !== null && !this.mine.has(event.message.id);
    this.apply(event);
    this.after = id ?? this.after;
    if (event.type === "run_paused" || asked || foreign) this.refresh();
  }

  apply(action) {
    const before = this.state;
    this.state = reduce(before, action);
    if (action.type === "tool_result") {
      const open = before.items.find(({ kind, id }) => kind === "tool" && id === action.result.toolCallId);
      if (!open || isOpen(open)) this.host.ended(action.result);
    }
    this.host.changed(action.type);
    this.answerAlone();
  }

  async refresh(settle) {
    const mine = ++this.refreshes;
    const view = await this.connection.read(this.url()).catch(() => null);
    if (view && mine === this.refreshes) this.apply({ type: "sync", view, settle });
    return view;
  }

  send(content, attached, policy) {
    const body = { message: { id: newId(), content }, context: this.host.context(attached), policy };
    this.outbox.push(body);
    this.submit(body);
  }

  submit(body) {
    this.keepOutbox();
    this.anewRead = false;
    this.mine.add(body.message.id);
    this.apply({ type: "wait", ...body });
    this.sending = this.sending.then(() => this.deliver(body)); // in the order in which they were written
  }

  keepOutbox() {
    keep("sessionStorage", this.key("outbox"), this.outbox);
  }

  // With its id, a message is said once, however often it is sent.
  async deliver(body) {
    const { message } = body;
    // It may be said already, or even be replaced.
    const held = (more) =>
      this.state.waiting.some(({ id }) => id === message.id) && this.apply({ type: "wait", message, ...more });
    try {
      const started = await this.connection.untilDone(
        (signal) => this.connection.post(this.url("/runs"), body, signal),
        () => held({ unsent: true }),
      );
      if (!started) return; // the panel is gone; what is in the outbox is sent by the next one
      this.mine.add(started.runId);
      held({ runId: started.runId });
      if (this.anewRead) this.refresh(true);
    } catch (error) {
      this.apply({ type: "withdraw", id: message.id });
      this.host.fail(error);
    }
    this.outbox.splice(this.outbox.indexOf(body), 1);
    this.keepOutbox();
  }

  async stop(runId = stoppable(this.state)) {
    if (runId) await this.connection.post(this.runUrl(runId, "cancel")).catch((error) => this.host.fail(error));
  }

  async edit(messageId, content) {
    const message = { id: newId(), content };
    this.mine.add(message.id);
    return this.anew("/edit", messageId, { messageId, message });
  }

  retry() {
    const asked = this.state.items.findLast(({ kind }) => kind === "user");
    return asked && this.anew("/retry", asked.id, {});
  }

  async anew(what, from, body) {
    this.apply({ type: "replace", id: from });
    try {
      await this.connection.post(this.url(what), { ...body, context: this.host.context() });
    } catch (error) {
      this.apply({ type: "replace", id: null });
      this.host.fail(error);
      return;
    }
    await this.refresh();
  }

  async fork(at) {
    return (await this.connection.post(this.url("/fork"), { at })).threadId;
  }

  usage() {
    return this.connection.read(this.url("/usage"));
  }

  async remove() {
    await this.connection.delete(this.url());
    for (const what of ["outbox", "allowed"]) keep("sessionStorage", this.key(what), null);
    keep("localStorage", this.key("draft"), null);
  }

  async decide({ id, name, ask }, said, always = false) {
    if (always) this.allow(name, true);
    const body = { callId: id, argsHash: ask.argsHash, context: this.host.context(), ...said };
    this.taken.add(id);
    try {
      this.mine.add((await this.connection.post(this.runUrl(ask.runId, "tool-results"), body)).runId);
    } catch (error) {
      this.taken.delete(id);
      if (error instanceof Refusal && error.code === "conflict") this.refresh();
      throw error;
    }
  }

  allow(name, yes) {
    if (yes) this.allowed.add(name);
    else this.allowed.delete(name);
    keep("sessionStorage", this.key("allowed"), [...this.allowed]);
    this.answerAlone();
  }

  answerAlone() {
    for (const tool of this.state.items) {
      if (!tool.ask || this.taken.has(tool.id) || !isOpen(tool)) continue;
      if (tool.ask.kind === "client") this.execute(tool);
      else if (this.allowed.has(tool.name)) this.decide(tool, { approved: true }).catch((error) => this.host.fail(error));
    }
  }

  // Of several tabs, the one that asked executes it, or one that is looked at.
  async execute(tool) {
    const run = this.host.clientTools()[tool.name];
    if (!run || (!this.mine.has(tool.ask.runId) && document.hidden)) return;
    this.taken.add(tool.id);
    const work = async (lock) => {
      if (lock === null) return; // another tab is at it, or has done it
      const view = await this.refresh();
      if (view && !view.pending?.some(({ call }) => call.id === tool.id)) return;
      const said = await outcomeOf(run, tool.ask.call.args);
      await this.decide(tool, said).catch((error) => error.code === "conflict" || this.host.fail(error));
    };
    if (!navigator.locks) await work();
    else await navigator.locks.request(`playhead ${tool.id}`, { ifAvailable: true }, work);
  }
}

async function outcomeOf(run, args) {
  try {
    return JSON.parse(JSON.stringify({ result: (await run(structuredClone(args))) ?? null }));
  } catch (error) {
    return { error: String(error?.message ?? error) };
  }
}
