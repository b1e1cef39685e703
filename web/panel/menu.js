// What is not needed all the time: a menu, and sheets over the panel.

import { titleOf } from "./cards.js";
import { button, element, iconButton } from "./dom.js";
import { textOf } from "./reducer.js";

export class Menu {
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
      Object.assign(button(name, () => this.toggle(false, work), t(name)), { role: "menuitem" }),
    );
    this.list = element("div", { className: "menu", role: "menu", ariaLabel: t("menu"), hidden: true }, ...buttons);
    this.sheet = element("dialog", { className: "sheet", "aria-labelledby": "sheet-title" });
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
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 }[event.key];
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
      const revoke = () => {
        session().allow(name, false);
        this.allowed();
      };
      return element("li", {}, element("span", {}, titleOf(name)), button("quiet", revoke, t("revoke")));
    });
    this.open(t("allowed"), names.length ? element("ul", { className: "grants" }, ...rows) : element("p", {}, t("allowedNone")));
  }

  remove() {
    const { t } = this.host;
    const close = () => this.sheet.close();
    const yes = () => {
      close();
      this.host.remove();
    };
    const no = button("quiet", close, t("cancel"));
    this.open(t("delete"), element("p", {}, t("deleteSure")), element("p", { className: "choice" }, button("primary danger", yes, t("deleteYes")), no));
    no.focus();
  }

  async usage() {
    const { t } = this.host;
    const turns = await this.host.usage();
    if (!turns) return;
    if (!turns.length) return void this.open(t("usage"), element("p", {}, t("usageNone")));
    const head = ["usageTurn", "usageModel", "usageTokens", "usageCost", "usageTime"];
    const number = new Intl.NumberFormat();
    const time = new Intl.NumberFormat(undefined, { style: "unit", unit: "second", maximumFractionDigits: 1 });
    const money = new Intl.NumberFormat(undefined, { style: "currency", currency: "USD", maximumFractionDigits: 6 });
    const known = (value, show = number, by = 1) => (value === null ? t("unknown") : show.format(value / by));
    const cells = ({ models, input, output, cost, ms }) => [
      models.join(", ") || t("unknown"),
      `${known(input)} / ${known(output)}`,
      known(cost, money, 1e6),
      known(ms, time, 1e3),
    ];
    const row = (turn) =>
      element("tr", {}, element("th", { scope: "row" }, turn.title), ...cells(turn).map((text) => element("td", {}, text)));
    const part = (tag, ...rows) => element(tag, {}, ...rows);
    const titles = head.map((name) => element("th", { scope: "col" }, t(name)));
    const whole = { title: t("usageTotal"), ...summed(turns.flatMap(({ steps }) => steps)) };
    const table = part("table", part("thead", part("tr", ...titles)), part("tbody", ...turns.map(row)), part("tfoot", row(whole)));
    this.open(t("usage"), element("div", { className: "table", tabIndex: 0, role: "group", ariaLabel: t("usage") }, table));
  }
}

function summed(steps) {
  const sum = (of) => steps.map(of).reduce((all, one) => (one === undefined ? all : (all ?? 0) + one), null);
  return {
    models: [...new Set(steps.map(({ model }) => model).filter(Boolean))],
    input: sum(({ usage }) => usage.inputTokens),
    output: sum(({ usage }) => usage.outputTokens),
    cost: sum(({ usage }) => usage.costMicroUsd),
    ms: sum(({ latencyMs }) => latencyMs),
  };
}

export function usageByTurn(items, steps) {
  const turns = [];
  for (const item of items) {
    if (item.kind === "user") turns.push({ title: titleOfTurn(item), steps: [] });
    const step = steps.find(({ messageId }) => messageId === item.id || messageId === item.messageId);
    const turn = turns.at(-1);
    if (step && turn && !turn.steps.includes(step)) turn.steps.push(step);
  }
  return turns.filter((turn) => turn.steps.length).map((turn) => ({ ...turn, ...summed(turn.steps) }));
}

function titleOfTurn({ content }) {
  const text = textOf(content);
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}
