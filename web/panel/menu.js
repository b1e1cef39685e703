// What is not needed all the time: a menu, and sheets over the panel.

import { titleOf } from "./cards.js";
import { element, icon, iconButton } from "./dom.js";

export class Menu {
  // `host` has `t` and what the entries do.
  constructor(host) {
    const { t } = host;
    this.host = host;
    this.button = iconButton("more", t("menu"), () => this.toggle(), { id: "menu-button", ariaExpanded: "false", ariaHasPopup: "true" });
    const entries = [
      ["newThread", () => host.newThread()],
      ["usage", () => this.usage()],
      ["allowed", () => this.allowed()],
      ["exportMarkdown", () => host.save("markdown")],
      ["exportJson", () => host.save("json")],
      ["shortcuts", () => this.shortcuts()],
      ["delete", () => this.remove()],
    ];
    const buttons = entries.map(([name, work]) =>
      element("button", { type: "button", role: "menuitem", className: name, onclick: () => this.toggle(false, work) }, t(name)),
    );
    this.list = element("div", { className: "menu", role: "menu", ariaLabel: t("menu"), hidden: true }, ...buttons);
    this.sheet = element("dialog", { className: "sheet" });
    this.node = element("div", { className: "menu-place" }, this.button, this.list);
    this.node.addEventListener("keydown", (event) => this.press(event));
    this.node.addEventListener("focusout", ({ relatedTarget }) => this.node.contains(relatedTarget) || this.toggle(false, null, false));
  }

  toggle(open = this.list.hidden, work = null, back = true) {
    if (this.list.hidden !== open) return;
    this.list.hidden = !open;
    this.button.ariaExpanded = String(open);
    if (open) this.list.firstChild.focus();
    else if (back) this.button.focus();
    work?.();
  }

  press(event) {
    const buttons = [...this.list.children];
    const at = buttons.indexOf(event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (event.key === "Escape" && !this.list.hidden) this.toggle(false);
    else if (to !== undefined && at >= 0) buttons.at(to % buttons.length).focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  open(title, ...content) {
    const { t } = this.host;
    const close = iconButton("cross", t("close"), () => this.sheet.close());
    this.sheet.replaceChildren(element("div", { className: "sheet-head" }, element("h2", { id: "sheet-title" }, title), close), ...content);
    this.sheet.setAttribute("aria-labelledby", "sheet-title");
    if (!this.sheet.open) this.sheet.showModal();
  }

  shortcuts() {
    const { t } = this.host;
    const rows = t("keys").map(([keys, what]) => element("div", {}, element("dt", {}, element("kbd", {}, keys)), element("dd", {}, what)));
    this.open(t("shortcuts"), element("dl", { className: "keys" }, ...rows));
  }

  allowed() {
    const { t, session } = this.host;
    const names = [...session().allowed];
    const rows = names.map((name) => {
      const revoke = element("button", { type: "button", className: "quiet" }, t("revoke"));
      revoke.addEventListener("click", () => {
        session().allow(name, false);
        this.allowed();
      });
      return element("li", {}, element("span", {}, titleOf(name)), revoke);
    });
    this.open(t("allowed"), names.length ? element("ul", { className: "grants" }, ...rows) : element("p", {}, t("allowedNone")));
  }

  remove() {
    const { t } = this.host;
    const yes = element("button", { type: "button", className: "primary danger" }, t("deleteYes"));
    const no = element("button", { type: "button", className: "quiet", onclick: () => this.sheet.close() }, t("cancel"));
    yes.addEventListener("click", () => {
      this.sheet.close();
      this.host.remove();
    });
    this.open(t("delete"), element("p", {}, t("deleteSure")), element("p", { className: "choice" }, yes, no));
    no.focus();
  }

  async usage() {
    const { t } = this.host;
    const turns = await this.host.usage();
    if (!turns) return;
    if (!turns.length) return void this.open(t("usage"), element("p", {}, t("usageNone")));
    const head = ["usageTurn", "usageModel", "usageTokens", "usageCost", "usageTime"];
    const number = new Intl.NumberFormat();
    const money = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD", maximumFractionDigits: 6 });
    const known = (value, show) => (value === null ? t("unknown") : show(value));
    const cells = ({ title, models, input, output, cost, ms }) => [
      element("th", { scope: "row" }, title),
      element("td", {}, models.join(", ") || t("unknown")),
      element("td", {}, `${known(input, (n) => number.format(n))} / ${known(output, (n) => number.format(n))}`),
      element("td", {}, known(cost, (n) => money.format(n / 1e6))),
      element("td", {}, known(ms, (n) => `${number.format(Math.round(n / 100) / 10)} s`)),
    ];
    const row = (turn) => element("tr", {}, ...cells(turn));
    const table = element(
      "table",
      {},
      element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, t(name))))),
      element("tbody", {}, ...turns.map(row)),
      element("tfoot", {}, row(total(turns, t("usageTotal")))),
    );
    this.open(t("usage"), element("div", { className: "table", tabIndex: 0, role: "group", ariaLabel: t("usage") }, table));
  }
}

const sum = (values) => (values.every((value) => value === null) ? null : values.reduce((all, one) => all + (one ?? 0), 0));

function total(turns, title) {
  const of = (name) => sum(turns.map((turn) => turn[name]));
  const models = [...new Set(turns.flatMap((turn) => turn.models))];
  return { title, models, input: of("input"), output: of("output"), cost: of("cost"), ms: of("ms") };
}

// The model calls of each turn, together. Items name the messages, usage the message of each call.
export function usageByTurn(items, steps) {
  const byMessage = new Map(steps.map((step) => [step.messageId, step]));
  const turns = [];
  for (const item of items) {
    if (item.kind === "user") turns.push({ title: titleOfTurn(item), steps: [] });
    const step = byMessage.get(item.id) ?? byMessage.get(item.messageId);
    if (!step || !turns.length) continue;
    byMessage.delete(step.messageId);
    turns.at(-1).steps.push(step);
  }
  return turns
    .filter((turn) => turn.steps.length)
    .map((turn) => {
      const of = (name) => sum(turn.steps.map(({ usage }) => usage[name] ?? null));
      return {
        title: turn.title,
        models: [...new Set(turn.steps.map(({ model }) => model).filter(Boolean))],
        input: of("inputTokens"),
        output: of("outputTokens"),
        cost: of("costMicroUsd"),
        ms: sum(turn.steps.map(({ latencyMs }) => latencyMs ?? null)),
      };
    });
}

function titleOfTurn({ content }) {
  const text = typeof content === "string" ? content : (content.find((part) => part.text)?.text ?? "");
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
