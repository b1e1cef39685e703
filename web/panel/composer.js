// Where a message is written, which outlives a reload.

import { element, icon, iconButton } from "./dom.js";
import { keep, recall } from "./keep.js";

const ATTACHED = "Attached: ";

export class Composer {
  constructor(host) {
    this.host = host;
    const { t } = host;
    this.items = [];
    this.input = element("textarea", { id: "message", part: "input", rows: 1, placeholder: t("placeholder"), ariaLabel: t("message"), dir: "auto" });
    this.chips = element("ul", { className: "chips", ariaLabel: t("attached") });
    this.sendButton = iconButton("send", t("send"), null, { id: "send", part: "send", type: "submit", className: "round" });
    this.steerButton = iconButton("steer", t("steer"), () => this.submit("steer"), { id: "steer", part: "steer", className: "round" });
    const stop = () => {
      host.stop();
      this.input.focus();
    };
    this.stopButton = iconButton("stop", t("stop"), stop, { id: "stop", part: "stop", className: "round" });
    const buttons = element("div", { className: "buttons" }, this.steerButton, this.sendButton, this.stopButton);
    this.node = element("form", { id: "composer", part: "composer" }, this.chips, this.input, buttons);
    this.node.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    this.input.addEventListener("keydown", (event) => this.press(event));
    this.input.addEventListener("input", () => this.changed());
    this.running = false;
  }

  open(key) {
    this.key = key;
    this.input.value = recall("localStorage", key, "");
    this.put([]);
  }

  changed() {
    keep("localStorage", this.key, this.input.value);
    this.show(this.running);
  }

  show(running) {
    const { t } = this.host;
    this.running = running;
    const empty = !this.input.value.trim() && this.items.length === 0;
    this.stopButton.hidden = !running;
    this.steerButton.hidden = !running || empty;
    this.sendButton.hidden = running && empty;
    this.sendButton.disabled = empty;
    this.sendButton.ariaLabel = this.sendButton.title = t(running ? "queue" : "send");
  }

  press(event) {
    // What an input method has open is its own: its Enter chooses a word.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.submit(event.ctrlKey ? "steer" : undefined);
    } else if (event.key === "ArrowUp" && !this.input.value) {
      event.preventDefault();
      this.host.editLast();
    }
  }

  submit(policy) {
    const text = this.input.value.trim();
    if (!text && this.items.length === 0) return;
    const more = this.items.map((item) => ({ type: "text", text: ATTACHED + described(item) }));
    this.host.send(more.length ? [{ type: "text", text }, ...more].filter((part) => part.text) : text, this.items, policy);
    this.input.value = "";
    this.put([]);
    this.input.focus();
  }

  attach(item) {
    this.put([...this.items, item]);
    this.input.focus();
  }

  put(items) {
    const { t } = this.host;
    this.items = items;
    this.changed();
    this.chips.hidden = items.length === 0;
    this.chips.replaceChildren(
      ...items.map((item) => {
        const label = labelOf(item);
        const remove = () => {
          this.put(this.items.filter((one) => one !== item));
          this.input.focus();
        };
        return chip(label, iconButton("cross", t("detach", { label }), remove));
      }),
    );
  }

  giveBack(text) {
    this.input.value = this.input.value ? `${text}\n${this.input.value}` : text;
    this.changed();
  }
}

export const chip = (label, ...more) =>
  element("li", { className: "chip" }, icon("clip"), element("span", {}, label), ...more);
const labelOf = (item) => (typeof item === "string" ? item : String(item.label ?? item.name ?? item.id ?? "…"));

function described(item) {
  if (typeof item === "string") return item;
  const { label, ...rest } = item;
  const more = JSON.stringify(rest);
  return more === "{}" ? labelOf(item) : `${labelOf(item)}\n${more}`;
}

export function partsOf(content) {
  if (typeof content === "string") return { text: content, attached: [] };
  const texts = content.map((part) => part.text ?? `(${part.type})`);
  const isAttached = (text) => text.startsWith(ATTACHED);
  return {
    text: texts.filter((text) => !isAttached(text)).join("\n"),
    attached: texts.filter(isAttached).map((text) => text.slice(ATTACHED.length).split("\n")[0]),
  };
}
