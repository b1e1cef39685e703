// What stands in the conversation: one row for each item.

import { ToolCard, masked } from "./cards.js";
import { chip, partsOf } from "./composer.js";
import { button, copyButton, element, icon, iconButton } from "./dom.js";
import { Markdown } from "./markdown.js";
import { EMPTY, reduce } from "./reducer.js";

const CUTS = { interrupted: "notes.cancelled", length: "notes.length" };

export function rowOf(item, host, lazy) {
  return new ROWS[item.kind](item, host, lazy);
}

function bubble(content, t) {
  const { text, attached } = partsOf(content);
  const node = element("p", { className: "user", dir: "auto" }, text);
  const list = () => element("ul", { className: "chips", ariaLabel: t("attached") }, ...attached.map((label) => chip(label)));
  return { node, text, chips: attached.length ? list() : null };
}

class UserRow {
  constructor({ id, content, source }, host) {
    const { t } = host;
    const { node, text, chips } = bubble(content, t);
    this.host = host;
    this.id = id;
    this.text = text;
    this.bubble = node;
    this.actions = element(
      "div",
      { className: "actions" },
      iconButton("edit", t("edit"), () => this.edit(), { className: "icon-button idle" }),
    );
    this.earlier = element("div", { className: "earlier", hidden: true });
    this.picker = element("div", { className: "picker", hidden: true });
    this.node = element("div", { className: "row from-user" }, this.earlier, chips, node, this.actions, this.picker);
    if (source) this.node.dataset.source = source;
  }

  show({ replaced }) {
    this.node.classList.toggle("replaced", Boolean(replaced));
  }

  edit() {
    const { t } = this.host;
    if (this.form) return;
    const field = element("textarea", { value: this.text, ariaLabel: t("edit"), dir: "auto" });
    const end = () => {
      this.form.remove();
      this.form = null;
      this.bubble.hidden = this.actions.hidden = false;
    };
    const save = element("button", { type: "submit", className: "primary" }, t("save"));
    const cancel = button("quiet", end, t("cancel"));
    this.form = element("form", { className: "edit" }, field, element("p", { className: "choice" }, save, cancel));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      const text = field.value.trim();
      end();
      if (text) this.host.edit(this.id, text);
    });
    this.form.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape") end();
      else if (event.key === "Enter" && !event.shiftKey && event.target === field) this.form.requestSubmit();
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.bubble.hidden = this.actions.hidden = true;
    this.bubble.after(this.form);
    field.focus();
  }

  versions(versions) {
    if (this.had === versions.length) return;
    this.had = versions.length;
    const { t } = this.host;
    const count = versions.length + 1;
    const label = element("span", {});
    const go = (by) => () => this.turnTo(Math.min(count, Math.max(1, this.at + by)), versions, label);
    const before = iconButton("previous", t("previousVersion"), go(-1));
    const after = iconButton("next", t("nextVersion"), go(1));
    this.picker.hidden = versions.length === 0;
    this.picker.replaceChildren(before, label, after);
    this.turnTo(count, versions, label);
  }

  turnTo(at, versions, label) {
    const { t } = this.host;
    this.at = at;
    label.textContent = t("versions", { n: at, count: versions.length + 1 });
    const version = versions[at - 1];
    this.earlier.hidden = !version;
    if (!version) return void this.earlier.replaceChildren();
    const { items } = reduce(EMPTY, { type: "load", view: version });
    const rows = items.map((item) => {
      const row = rowOf(item, this.host, false);
      row.show(item);
      return row.node;
    });
    const title = element("p", { className: "earlier-title" }, `${t("earlier")}. ${t("replacedNote")}`);
    this.earlier.replaceChildren(title, ...rows);
  }
}

class TextRow {
  constructor(item, host, lazy) {
    const { t } = host;
    this.host = host;
    this.lazy = lazy;
    this.body = element("div", { className: "assistant", dir: "auto" });
    this.markdown = new Markdown(this.body, t);
    this.cut = element("p", { className: "cut", hidden: true });
    const actions = element(
      "div",
      { className: "actions" },
      copyButton(t, () => this.text),
      iconButton("retry", t("retry"), () => host.retry(), { className: "icon-button idle last" }),
      iconButton("branch", t("branch"), () => host.branch(item.id), { className: "icon-button idle" }),
    );
    this.node = element("div", { className: "row from-assistant" }, this.body, this.cut, actions);
    this.node.addEventListener("wake", () => this.wake(), { once: true });
  }

  show({ text, whole, stopReason, replaced }) {
    const done = whole && !this.whole;
    this.text = text;
    this.whole = whole;
    this.body.ariaBusy = whole ? null : "true";
    this.node.classList.toggle("growing", !whole);
    this.node.classList.toggle("replaced", Boolean(replaced));
    this.node.hidden = !text.trim();
    const cut = CUTS[stopReason];
    this.cut.hidden = !cut;
    if (cut) this.cut.textContent = this.host.t(cut);
    if (this.lazy) this.body.textContent = text;
    else this.markdown.show(text, whole);
    if (done && !this.lazy) this.host.said(this.body.textContent);
  }

  wake() {
    if (!this.lazy) return;
    this.lazy = false;
    this.body.replaceChildren();
    this.markdown.show(this.text, this.whole);
  }
}

class ReasoningRow {
  constructor(item, { t }) {
    this.body = element("div", { className: "thoughts", dir: "auto" });
    this.node = element("details", { className: "row reasoning" }, element("summary", {}, t("reasoning")), this.body);
  }

  show({ text }) {
    this.body.textContent = text;
  }
}

class ToolRow {
  constructor(item, host) {
    this.host = host;
    this.card = new ToolCard(item, host);
    this.node = element("div", { className: "row" }, this.card.node);
  }

  show(item) {
    this.card.show(item);
    this.node.classList.toggle("replaced", Boolean(item.replaced));
  }

  tick() {
    this.card.tick();
  }
}

class NoteRow {
  constructor({ id, reason, code, text }, host) {
    const { t } = host;
    const failed = reason === "error";
    const known = failed ? t(`errors.${code}`) : t(`notes.${reason}`);
    const said = known ?? (text || t("error"));
    const retry = button("quiet idle last", () => host.retry(), icon("retry"), t("retry"));
    this.node = element(
      "div",
      { className: failed ? "row failure" : "row aside" },
      element("p", { className: failed ? "note error" : "note" }, said),
      failed ? detailsOf({ text: known ? text : "", code, id }, t) : null,
      failed ? retry : null,
    );
  }

  show({ replaced }) {
    this.node.classList.toggle("replaced", Boolean(replaced));
  }
}

export function detailsOf({ text, code, id }, t) {
  const lines = [masked(text), code, id && `${t("reference")}: ${id}`].filter(Boolean);
  if (!lines.length) return null;
  const body = lines.map((line) => element("p", {}, line));
  return element("details", { className: "details" }, element("summary", {}, t("details")), ...body, copyButton(t, () => lines.join("\n")));
}

const ROWS = { user: UserRow, text: TextRow, reasoning: ReasoningRow, tool: ToolRow, note: NoteRow };

export class WaitingRow {
  constructor({ content }, host) {
    const { t } = host;
    const { node, chips } = bubble(content, t);
    this.host = host;
    this.bubble = node;
    this.back = button("copy", () => host.stop(this.runId), t("cancelWaiting"));
    this.state = element("span", { className: "waits" });
    this.node = element("div", { className: "row from-user" }, chips, node, element("div", { className: "actions" }, this.state, this.back));
  }

  show({ runId, unsent, policy }, running) {
    const { t } = this.host;
    this.runId = runId;
    this.bubble.dataset.state = this.state.textContent = unsent ? t("unsent") : runId && running ? t(policy === "steer" ? "steers" : "waits") : "";
    this.back.hidden = !(runId && running);
  }
}
