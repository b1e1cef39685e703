// One run, drawn from its events. Told again from the first event, it draws itself anew.
// Text is added as text, never as markup: a model or a file's author wrote it.

import { element } from "./sse.js";
import { transcriptLines } from "./media.js";

const NOTES = { cancelled: "Stopped.", max_steps: "Stopped: the limit of steps was reached." };

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

  take(event) {
    switch (event.type) {
      case "step_start":
        this.reply = null;
        this.status = "Thinking…";
        break;
      case "attempt": // what was shown of this step is void
        if (this.reply) this.reply.textContent = "";
        break;
      case "text_delta":
        this.status = "";
        this.say(event.text);
        break;
      case "tool_call_start":
        this.card(event.callId, event.name);
        break;
      case "tool_call":
        this.status = "Working…";
        this.card(event.call.id, event.call.name);
        break;
      case "tool_progress":
        this.cards.get(event.callId)?.progress(event.fraction, event.text);
        break;
      case "tool_result":
        this.card(event.result.toolCallId, event.result.name).finish(event.result.result, event.result.error);
        break;
      case "step_end":
        if (!this.reply) this.say(event.result.assistantMessage.content);
        break;
      case "run_end":
      case "run_paused":
        this.end(event.result);
    }
  }

  // The same, of a run that is history.
  takeMessage({ role, content, toolCalls = [], toolCallId, toolName, isError }) {
    if (role === "tool") {
      this.card(toolCallId, toolName).finish(isError ? null : parsed(content), isError ? content : null);
      return;
    }
    this.reply = null;
    this.say(content);
    for (const call of toolCalls) this.card(call.id, call.name);
  }

  say(text) {
    if (!text) return;
    if (!this.reply) this.node.append((this.reply = element("p", { className: "assistant" })));
    this.reply.append(text);
  }

  card(id, name) {
    if (!this.cards.has(id)) {
      this.cards.set(id, new ToolCard(name));
      this.node.append(this.cards.get(id).node);
    }
    return this.cards.get(id);
  }

  end({ finishReason, stopReason, errorMessage }) {
    this.ended = true;
    this.status = "";
    for (const card of this.cards.values()) card.close();
    const failed = finishReason === "error";
    const cut = stopReason === "length" ? "The answer was cut at the output limit." : "";
    const note = failed ? (errorMessage ?? "The run failed.") : (NOTES[finishReason] ?? cut);
    if (note) this.node.append(element("p", { className: failed ? "note error" : "note" }, note));
  }
}

class ToolCard {
  constructor(name) {
    this.state = element("span", { className: "state" }, "running");
    this.bar = element("progress", { max: 1, ariaLabel: name });
    this.detail = element("p", { className: "detail" });
    const head = element("p", { className: "tool-head" }, element("code", {}, name), this.state);
    this.node = element("div", { className: "tool" }, head, this.bar, this.detail);
  }

  progress(fraction, text) {
    if (fraction == null) this.bar.removeAttribute("value");
    else this.bar.value = fraction;
    this.detail.textContent = text ?? "";
  }

  finish(result, error) {
    this.close(error ? "failed" : "done");
    this.node.classList.add(error ? "failed" : "done");
    if (!error && Array.isArray(result?.segments)) return this.transcript(result);
    const text = error ?? (typeof result === "string" ? result : JSON.stringify(result));
    this.detail.textContent = text.length > 300 ? `${text.slice(0, 300)}…` : text;
  }

  transcript(result) {
    const lines = transcriptLines(result.segments, result.assetId);
    this.detail.textContent = result.assetName;
    const count = lines.length === 1 ? "1 line" : `${lines.length} lines`;
    const list = element("ol", { className: "lines" }, ...lines);
    this.node.append(element("details", {}, element("summary", {}, count), list));
    document.dispatchEvent(new CustomEvent("transcribed", { detail: result }));
  }

  // Also of a call that was never answered, because its run ended before.
  close(state = "not finished") {
    if (!this.bar.isConnected) return;
    this.bar.remove();
    this.state.textContent = state;
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
