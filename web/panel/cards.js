// The card of a tool call: what it is, how far it is, what it waits for, what came of it.

import { button, clock, copyButton, element, icon, timeButton } from "./dom.js";
import { withTimes } from "./markdown.js";
import { isOpen } from "./reducer.js";

const LONGEST = 600;
const SECRET = /(?:api.?key|token|secret|password|passwd|authorization|cookie|credential)/i;
const SECRET_TEXT = /\b(?:sk|pk|ghp|gho|xox[abp]|AKIA|AIza|Bearer)[-_ ]?[A-Za-z0-9_\-.]{12,}/g;
const HIDDEN = "••••••";

export function titleOf(name) {
  const words = name.replace(/([a-z])([A-Z])/g, "$1 $2").replace(/[_\-.]+/g, " ").trim().toLowerCase();
  return words ? words[0].toUpperCase() + words.slice(1) : name;
}

export function plain(value) {
  const shown = JSON.stringify(value, (key, one) => (key && SECRET.test(key) && typeof one === "string" ? HIDDEN : one), 2);
  return masked(shown ?? "");
}

export const masked = (text) => text.replace(SECRET_TEXT, HIDDEN);
const maskedDraft = (text) =>
  masked(text.replace(/("[^"]*"\s*:\s*)"([^"]*)"?/g, (whole, key) => (SECRET.test(key) ? `${key}"${HIDDEN}"` : whole)));

export class ToolCard {
  constructor(tool, host) {
    this.host = host;
    const { t } = host;
    const title = titleOf(tool.name);
    this.sign = element("span", { className: "sign" });
    this.state = element("span", { className: "state" });
    this.elapsed = element("span", { className: "elapsed", ariaHidden: "true" });
    const name = element("span", { className: "tool-name" }, element("strong", {}, title), element("code", {}, tool.name));
    const head = element("div", { className: "tool-head" }, this.sign, name, this.elapsed, this.state);
    this.bar = element("progress", { max: 1, ariaLabel: title, hidden: true });
    this.detail = element("div", { className: "detail" });
    this.args = element("pre", { tabIndex: 0, ariaLabel: t("args"), role: "group" });
    this.more = element("details", { className: "args", hidden: true }, element("summary", {}, t("args")), this.args);
    this.question = element("div", { className: "question", hidden: true });
    this.outcome = element("div", { className: "outcome" });
    this.node = element("div", { className: "tool", role: "group", ariaLabel: title }, head, this.bar, this.detail, this.question, this.more, this.outcome);
    this.shown = {};
  }

  show(tool) {
    const { t } = this.host;
    const old = this.shown;
    this.shown = tool;
    this.node.dataset.state = tool.state;
    if (old.state !== tool.state || old.ask !== tool.ask) this.showState(tool);
    if (old.args !== tool.args || old.argsText !== tool.argsText) this.showArgs(tool);
    const { fraction = null, text = "" } = tool.progress ?? {};
    this.bar.hidden = tool.state !== "running";
    if (fraction === null) this.bar.removeAttribute("value");
    else this.bar.value = fraction;
    const percent = fraction === null ? "" : new Intl.NumberFormat(undefined, { style: "percent" }).format(fraction);
    this.detail.textContent = [percent, text].filter(Boolean).join(" · ");
    if (old.ask !== tool.ask) this.ask(tool);
    if (!isOpen(tool) && !this.over) this.finish(tool);
    this.tick();
    if (tool.ask && this.host.session().allowed.has(tool.name)) this.state.textContent = t("alwaysDone");
  }

  showState({ state, ask }) {
    const { t } = this.host;
    const waits = { approval: "waitsApproval", client: "waitsClient" }[ask?.kind];
    this.state.textContent = t(state === "waiting" && waits ? waits : state);
    this.sign.replaceChildren(icon(state));
  }

  showArgs({ args, argsText }) {
    const empty = args !== null && Object.keys(args).length === 0;
    this.more.hidden = empty || (args === null && !argsText);
    if (args === null) this.more.open = true;
    else if (this.shown.state !== "writing") this.more.open = false;
    this.args.textContent = args === null ? maskedDraft(argsText) : plain(args);
  }

  tick() {
    const { state, startedAt, endedAt } = this.shown;
    const ms = state === "running" ? Date.now() - startedAt : endedAt - startedAt;
    this.elapsed.textContent = startedAt && ms >= 1_000 ? clock(ms / 1_000) : "";
  }

  // What exactly would happen, and the two answers.
  ask({ name, ask }) {
    const { t } = this.host;
    this.question.hidden = ask?.kind !== "approval";
    this.more.classList.toggle("asked", !this.question.hidden);
    if (this.question.hidden) return void this.question.replaceChildren();
    const title = titleOf(name);
    const shown = element("pre", { tabIndex: 0, ariaLabel: t("args"), role: "group" }, plain(ask.call.args));
    const edited = element("textarea", { ariaLabel: t("editArgs"), hidden: true, rows: 6, spellcheck: false });
    const reason = element("input", { type: "text", placeholder: t("reason"), ariaLabel: t("reason"), maxLength: 500 });
    const fault = element("p", { className: "fault", role: "alert" });
    const always = element("input", { type: "checkbox" });
    const change = () => {
      edited.value ||= JSON.stringify(ask.call.args, null, 2);
      [shown.hidden, edited.hidden, edit.hidden] = [true, false, true];
      edited.focus();
    };
    const edit = button("quiet", change, t("editArgs"));
    const answer = (approved) => async () => {
      const said = { approved };
      fault.textContent = "";
      try {
        if (approved && !edited.hidden) said.args = object(edited.value);
      } catch (error) {
        fault.textContent = t("badArgs", { error: error.message });
        return;
      }
      if (!approved && reason.value.trim()) said.reason = reason.value.trim();
      buttons.forEach((one) => (one.disabled = true));
      try {
        await this.host.decide(this.shown, said, approved && always.checked);
      } catch (error) {
        buttons.forEach((one) => (one.disabled = false));
        fault.textContent = error.message;
      }
    };
    const buttons = [button("primary", answer(true), t("approve")), button("quiet", answer(false), t("deny")), edit];
    const late = ask.expiresAt < Date.now();
    const time = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" }).format(ask.expiresAt);
    this.question.replaceChildren(
      element("p", { className: "asking" }, t("ask", { title })),
      shown,
      edited,
      reason,
      element("label", { className: "always" }, always, element("span", {}, t("always", { title }))),
      element("p", { className: "choice" }, ...buttons),
      element("p", { className: "expires" }, late ? t("expired") : t("expires", { time })),
      fault,
    );
  }

  finish({ result, error, state }) {
    const { t } = this.host;
    this.over = true;
    if (state === "stopped" && error === null) return;
    if (error === null && isTranscript(result)) return void this.outcome.append(...this.transcript(result));
    const text = masked(error ?? (typeof result === "string" ? result : result === null ? "" : plain(result)));
    if (!text) return;
    const body = element("div", { className: "result", role: "group", ariaLabel: t("result"), tabIndex: 0 });
    const show = (whole) =>
      body.replaceChildren(...withTimes(whole ? text : `${text.slice(0, LONGEST)}…`, t));
    const foot = element("div", { className: "result-foot" }, copyButton(t, () => text));
    if (text.length <= LONGEST) show(true);
    else {
      const all = button("copy", () => unfold(all.ariaExpanded !== "true"));
      const unfold = (open) => {
        all.ariaExpanded = String(open);
        all.textContent = t(open ? "showLess" : "showAll");
        show(open);
      };
      unfold(false);
      foot.prepend(all);
    }
    this.outcome.append(body, foot);
  }

  transcript({ segments, assetId, assetName }) {
    const { t } = this.host;
    const count = segments.length === 1 ? t("line") : t("lines", { count: segments.length });
    const list = element("ol", { className: "lines" });
    const fill = () => list.childElementCount || list.append(...segments.map((one) => element("li", {}, this.segment(one, assetId))));
    const fold = element("details", {}, element("summary", {}, [assetName, count].filter(Boolean).join(" · ")), list);
    fold.addEventListener("toggle", fill, { once: true });
    return [fold];
  }

  segment({ start, end, text }, assetId) {
    const times = { ms: Math.round(start * 1000), endMs: end === undefined ? null : Math.round(end * 1000), assetId };
    return timeButton(this.host.t, element("span", { className: "at" }, clock(start)), times, ` ${text.trim()}`);
  }
}

const isTranscript = (result) =>
  Array.isArray(result?.segments) && result.segments.every((one) => one?.start >= 0 && typeof one.text === "string");

function object(text) {
  const value = JSON.parse(text);
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error(text.slice(0, 40));
  return value;
}
