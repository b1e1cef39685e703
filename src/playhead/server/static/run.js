// One run, drawn from its events. Told again from the first event, it draws itself anew.

import { element } from "./sse.js";
import { transcriptLines } from "./media.js";

export class RunView {
  constructor() {
    this.node = element("div", { className: "run" });
    this.reset();
  }

  reset() {
    this.node.replaceChildren();
    this.cards = new Map();
    this.reply = null;
    this.ended = false;
    this.status = "Thinking…";
  }

  // Text is added as text, never as markup: a model writes it.
  take(event) {
    switch (event.type) {
      case "step_start":
        this.reply = null;
        this.status = "Thinking…";
        break;
      case "attempt":
        if (this.reply) this.reply.textContent = "";
        break;
      case "text_delta":
        this.say(event.text);
        this.status = "";
        break;
      case "tool_call_start":
        this.card(event.callId, event.name);
        break;
      case "tool_call":
        this.card(event.call.id, event.call.name);
        this.status = "Working…";
        break;
      case "tool_progress":
        this.cards.get(event.callId)?.progress(event.fraction, event.text);
        break;
      case "tool_result":
        this.card(event.result.toolCallId, event.result.name).finish(event.result.result, event.result.error);
        break;
      case "step_end":
        if (!this.reply && event.result.assistantMessage.content) this.say(event.result.assistantMessage.content);
        break;
      case "run_end":
      case "run_paused":
        this.end(event.result);
    }
  }

  say(text) {
    if (!this.reply) {
      this.reply = element("p", { className: "assistant" });
      this.node.append(this.reply);
    }
    this.reply.append(text);
  }

  card(id, name) {
    if (!this.cards.has(id)) {
      const card = new ToolCard(name);
      this.cards.set(id, card);
      this.node.append(card.node);
    }
    return this.cards.get(id);
  }

  end(result) {
    this.ended = true;
    this.status = "";
    for (const card of this.cards.values()) card.close();
    const notes = {
      error: result.errorMessage ?? "The run failed.",
      cancelled: "Stopped.",
      max_steps: "Stopped: the limit of steps was reached.",
    };
    const cut = result.stopReason === "length" ? "The answer was cut at the output limit." : "";
    const note = notes[result.finishReason] ?? cut;
    if (note) this.note(note, result.finishReason === "error");
  }

  note(text, failed = false) {
    this.node.append(element("p", { className: failed ? "note error" : "note" }, text));
  }
}

export class ToolCard {
  constructor(name) {
    this.state = element("span", { className: "state" }, "running");
    this.bar = element("progress", { max: 1 });
    this.detail = element("p", { className: "detail" });
    this.node = element(
      "div",
      { className: "tool" },
      element("p", { className: "tool-head" }, element("code", {}, name), this.state),
      this.bar,
      this.detail,
    );
  }

  progress(fraction, text) {
    if (fraction == null) this.bar.removeAttribute("value");
    else this.bar.value = fraction;
    this.detail.textContent = text ?? "";
  }

  finish(result, error) {
    this.bar.remove();
    this.state.textContent = error ? "failed" : "done";
    this.node.classList.add(error ? "failed" : "done");
    this.detail.textContent = error ?? "";
    if (error) return;
    if (Array.isArray(result?.segments)) {
      this.detail.textContent = `${result.assetName}: ${result.segmentCount} lines`;
      const list = element("ol", { className: "lines" }, ...transcriptLines(result.segments, result.assetId));
      this.node.append(element("details", {}, element("summary", {}, "Lines"), list));
      document.dispatchEvent(new CustomEvent("transcribed", { detail: result }));
    } else {
      const text = typeof result === "string" ? result : JSON.stringify(result);
      this.detail.textContent = text.length > 300 ? `${text.slice(0, 300)}…` : text;
    }
  }

  // A call that was never answered, because its run ended before.
  close() {
    if (!this.bar.isConnected) return;
    this.bar.remove();
    this.state.textContent = "not finished";
  }
}
