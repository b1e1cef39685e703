// The card of a tool call: how far it is, what it waits for, what came of it.

import { element } from "./sse.js";
import { transcriptLines } from "./media.js";

const LONGEST = 300;

export class ToolCard {
  constructor(name) {
    this.name = name;
    this.open = true;
    this.state = element("span", { className: "state" }, "running");
    this.bar = element("progress", { max: 1, ariaLabel: name });
    this.detail = element("p", { className: "detail" });
    this.question = element("div", { className: "question", hidden: true });
    const head = element("p", { className: "tool-head" }, element("code", {}, name), this.state);
    this.node = element("div", { className: "tool" }, head, this.bar, this.question, this.detail);
  }

  progress(fraction, text) {
    if (fraction == null) this.bar.removeAttribute("value");
    else this.bar.value = fraction;
    this.detail.textContent = text ?? "";
  }

  // The run is over, and the call is not: somebody else has a word in it.
  wait(state = "waiting") {
    if (!this.open || this.asking) return;
    this.bar.hidden = true;
    this.state.textContent = state;
  }

  // Show what the call would do. `decide` tells the server, and fails if it does not take the answer.
  ask({ kind, call }, decide) {
    if (!this.open || this.asking) return;
    this.wait(kind === "approval" ? "waits for approval" : "waits for the application");
    if (kind !== "approval") return;
    const button = (label, approved) =>
      element("button", { type: "button", className: approved ? "" : "quiet", onclick: () => say(approved) }, label);
    const buttons = [button("Approve", true), button("Deny", false)];
    const say = async (approved) => {
      buttons.forEach((one) => (one.disabled = true));
      try {
        await decide(approved);
      } catch (error) {
        buttons.forEach((one) => (one.disabled = false));
        if (this.asking) this.detail.textContent = error.message;
      }
    };
    const args = element("pre", { tabIndex: 0, ariaLabel: "Arguments" }, JSON.stringify(call.args, null, 2));
    this.question.replaceChildren(args, element("p", { className: "choice" }, ...buttons));
    this.question.hidden = false;
  }

  get asking() {
    return !this.question.hidden;
  }

  // It was answered, here or elsewhere.
  resume() {
    this.question.hidden = true;
    if (!this.open) return;
    this.bar.hidden = false;
    this.state.textContent = "running";
    this.detail.textContent = "";
  }

  finish(result, error) {
    if (!this.open) return;
    this.close(error ? "failed" : "done");
    this.node.classList.add(error ? "failed" : "done");
    if (!error) document.dispatchEvent(new CustomEvent("playhead-result", { detail: { tool: this.name, result } }));
    if (!error && Array.isArray(result?.segments)) return this.transcript(result);
    const text = error ?? (typeof result === "string" ? result : (JSON.stringify(result) ?? ""));
    this.detail.textContent = text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
  }

  transcript(result) {
    const lines = transcriptLines(result.segments, result.assetId);
    this.detail.textContent = result.assetName;
    const count = lines.length === 1 ? "1 line" : `${lines.length} lines`;
    const list = element("ol", { className: "lines" }, ...lines);
    this.node.append(element("details", {}, element("summary", {}, count), list));
  }

  // Also of a call that was never answered, because its run ended before.
  close(state = "not finished") {
    if (!this.open) return;
    this.open = false;
    this.bar.remove();
    this.question.hidden = true;
    this.state.textContent = state;
  }
}
