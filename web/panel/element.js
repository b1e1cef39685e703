// The element: it joins the parts, and speaks with the host page.

import { sheet, texts } from "./assets.js";
import { Composer } from "./composer.js";
import { Connection, Refusal } from "./connection.js";
import { button, element, iconButton } from "./dom.js";
import { save, toJson, toMarkdown } from "./export.js";
import { keep, newId, recall } from "./keep.js";
import { Menu, usageByTurn } from "./menu.js";
import { detailsOf } from "./rows.js";
import { isOpen, textOf } from "./reducer.js";
import { Session } from "./session.js";
import { titleOf } from "./cards.js";
import { View } from "./view.js";

const THREAD = "playhead.thread";
const HOME = new URL("..", import.meta.url).href;
const SHOWN_BACK = 2_500;

export class PlayheadPanel extends HTMLElement {
  static observedAttributes = ["server", "thread"];

  #texts = {};
  #session = null;
  #frame = 0;

  constructor() {
    super();
    this.attachShadow({ mode: "open" });
    this.shadowRoot.adoptedStyleSheets = [sheet];
    // A host may have set them before this module was there.
    this.context ??= {};
    this.clientTools ??= {};
    this.fetch ??= (url, init) => window.fetch(url, { credentials: "same-origin", ...init });
    if (Object.hasOwn(this, "strings")) {
      this.#texts = this.strings;
      delete this.strings;
    }
  }

  get strings() {
    return this.#texts;
  }

  set strings(given) {
    this.#texts = given ?? {};
    if (this.isConnected) this.#rebuild();
  }

  get thread() {
    return this.#session?.id ?? this.getAttribute("thread");
  }

  set thread(id) {
    this.setAttribute("thread", id);
  }

  get theme() {
    return this.getAttribute("theme") ?? "auto";
  }

  set theme(value) {
    this.setAttribute("theme", value);
  }

  get server() {
    return new URL(this.getAttribute("server") ?? HOME, document.baseURI).href.replace(/\/*$/, "/");
  }

  set server(url) {
    this.setAttribute("server", url);
  }

  get status() {
    const { runs = [], items = [] } = this.#session?.state ?? {};
    const waits = items.some((item) => item.ask && isOpen(item));
    const connection = this.line ?? "connecting";
    return { thread: this.thread, state: runs.length ? "running" : waits ? "waiting" : "idle", connection };
  }

  connectedCallback() {
    this.#rebuild();
    this.timer = setInterval(() => this.view.tick(), 1_000);
  }

  disconnectedCallback() {
    clearInterval(this.timer);
    this.#close();
    this.view.close();
  }

  attributeChangedCallback(name, old, value) {
    if (this.isConnected && this.view && old !== value && !(name === "thread" && value === this.thread)) this.#open();
  }

  send(text) {
    this.#send(text);
  }

  attach(item) {
    this.composer.attach(item);
  }

  stop() {
    return this.#session.stop();
  }

  newThread() {
    this.#go(newId());
  }

  export(format = "markdown") {
    const { id, state } = this.#session;
    return format === "json" ? toJson(id, state) : toMarkdown(state, this.t);
  }

  focus() {
    this.composer.input.focus();
  }

  #rebuild() {
    this.#close();
    this.view?.close();
    this.t = texts(this.#texts);
    const { t } = this;
    const host = this.#host();
    this.view = new View(host);
    this.composer = new Composer(host);
    this.menu = new Menu(host);
    this.dot = element("span", { className: "dot", ariaHidden: "true" });
    this.statusLine = element("p", { id: "status", role: "status" });
    this.again = button("quiet", () => this.#again(), t("tryAgain"));
    this.again.id = "again";
    this.failure = element("div", { id: "chat-error", className: "failure", role: "alert", hidden: true });
    this.spoken = element("p", { className: "unseen", role: "status", id: "spoken" });
    const fresh = iconButton("plus", t("newThread"), () => this.newThread(), { id: "new-chat" });
    const title = element("h2", {}, t("title"));
    const header = element("header", { part: "header" }, this.dot, title, fresh, this.menu.node);
    const foot = element("div", { className: "line" }, this.statusLine, this.again);
    const panel = element("section", { id: "panel", part: "panel", ariaLabel: t("title") });
    panel.append(header, this.view.node, this.failure, foot, this.composer.node, this.spoken, this.menu.sheet);
    panel.addEventListener("click", (event) => this.#clicked(event));
    panel.addEventListener("keydown", (event) => this.#pressed(event));
    this.shadowRoot.replaceChildren(panel);
    const starters = t("starters").map((text) => button("starter", () => this.#send(text), text));
    this.view.hint.append(element("p", {}, t("hint")), element("div", { className: "starters" }, ...starters));
    this.#open();
  }

  #host() {
    return {
      t: this.t,
      session: () => this.#session,
      send: (...said) => {
        try {
          this.#send(...said);
        } catch (error) {
          this.#fail(error); // of the host's context
          throw error;
        }
      },
      stop: (runId) => this.#session.stop(runId),
      edit: (id, text) => this.#session.edit(id, text),
      editLast: () => this.view.editLast(),
      retry: () => this.#session.retry(),
      branch: (id) => this.#session.fork(id).then((copy) => this.#go(copy), (error) => this.#fail(error)),
      decide: (tool, said, always) => this.#session.decide(tool, said, always).then(() => this.focus()),
      said: (text) => this.#say(text),
      newThread: () => this.newThread(),
      usage: () => this.#usage(),
      save: (format) => {
        const [name, type] = format === "json" ? ["json", "application/json"] : ["md", "text/markdown"];
        save(this.export(format), `conversation.${name}`, type);
      },
      remove: () => this.#session.remove().then(() => this.newThread(), (error) => this.#fail(error)),
      context: (attached) => this.#contextOf(attached),
      clientTools: () => this.clientTools ?? {},
      changed: (type) => {
        this.quiet ||= type === "load"; // what was said before is not read out
        this.#draw();
      },
      line: (status, error) => this.#lineIs(status, error),
      fail: (error) => this.#fail(error),
      ended: (result) => this.#tell("playhead-result", { tool: result.name, result: result.result ?? null, error: result.error ?? null, callId: result.toolCallId }),
    };
  }

  #open() {
    this.#close();
    const id = this.getAttribute("thread") ?? recall("localStorage", THREAD, null) ?? newId();
    if (!this.hasAttribute("thread")) keep("localStorage", THREAD, id);
    const { server } = this;
    this.connection = new Connection((path, init) => this.fetch(new URL(path, server).href, init));
    const host = this.#host();
    const session = new Session(id, this.connection, host);
    // What is left of an earlier session changes nothing here.
    for (const name of ["changed", "line", "fail", "ended"]) {
      const work = host[name];
      host[name] = (...given) => this.#session === session && work(...given);
    }
    this.#session = session;
    this.returned = 0;
    this.failure.hidden = true;
    this.composer.open(session.key("draft"));
    this.#lineIs("connecting");
    session.open();
  }

  #close() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#frame);
    this.#frame = 0;
    this.connection?.close();
  }

  #go(id) {
    if (this.hasAttribute("thread")) this.setAttribute("thread", id);
    else {
      keep("localStorage", THREAD, id);
      this.#open();
    }
    this.focus();
  }

  // At most once a frame; a page that nobody looks at has none.
  #draw() {
    if (this.#frame) return;
    const draw = () => {
      this.#frame = 0;
      this.#drawNow();
    };
    this.#frame = document.hidden ? setTimeout(draw, 250) : requestAnimationFrame(draw);
  }

  #drawNow() {
    const { state } = this.#session;
    this.view.draw(state);
    this.quiet = false;
    this.composer.show(state.runs.length > 0 || state.waiting.some(({ runId }) => runId));
    for (const { content } of state.returned.slice(this.returned)) this.composer.giveBack(textOf(content));
    this.returned = state.returned.length;
    this.#announceAsks(state);
    this.#showStatus();
  }

  #showStatus() {
    const { busy = null } = this.#session.state;
    const line = { live: busy ?? "", refused: "" }[this.line] ?? this.line;
    const text = line && this.t(line);
    if (this.statusLine.textContent !== text) this.statusLine.textContent = text;
    this.again.hidden = this.line !== "gone" && this.line !== "refused";
    this.dot.dataset.line = this.line;
    this.statusLine.dataset.busy = this.line === "live" && busy ? busy : "";
    const now = JSON.stringify(this.status);
    if (now === this.told) return;
    this.told = now;
    this.#tell("playhead-status", this.status);
  }

  #lineIs(line, error = null) {
    const came = line === "live" && this.away;
    this.away = line === "lost" || line === "gone" || (line === "connecting" && this.away);
    clearTimeout(this.backTimer);
    this.line = came ? "back" : line;
    if (came) {
      this.backTimer = setTimeout(() => {
        this.line = "live";
        this.#showStatus();
      }, SHOWN_BACK);
    }
    if (error) this.#fail(error);
    else if (line === "live" && this.failure.dataset.line) this.failure.hidden = true;
    this.failure.dataset.line = error ? "line" : "";
    this.#showStatus();
  }

  #again() {
    const { line } = this;
    this.failure.hidden = true;
    this.#lineIs("connecting");
    if (line === "refused") this.#session.follow();
    else this.connection.again();
  }

  #fail(error) {
    const { t } = this;
    const { code = "", message = "" } = error;
    const refused = error instanceof Refusal;
    const known = refused ? t(`errors.${code}`) : navigator.onLine ? null : t("errors.offline");
    const close = iconButton("cross", t("close"), () => (this.failure.hidden = true));
    this.failure.replaceChildren(
      element("div", {}, element("p", { className: "error" }, known ?? (message || t("error"))), detailsOf({ text: known ? message : "", code }, t)),
      close,
    );
    this.failure.hidden = false;
  }

  // Read to who does not see it: a whole message, and not its growing.
  #say(text) {
    if (!this.quiet) this.spoken.textContent = text;
  }

  #announceAsks({ items }) {
    const asked = items.filter(({ ask }) => ask?.kind === "approval" && !this.#session.taken.has(ask.call.id));
    for (const { id, name } of asked) {
      if (this.announced?.has(id)) continue;
      (this.announced ??= new Set()).add(id);
      this.#say(this.t("announceAsk", { title: titleOf(name) }));
    }
  }

  #send(...said) {
    this.failure.hidden = true;
    this.#session.send(...said);
    this.view.toEnd();
  }

  #contextOf(attached) {
    const context = (typeof this.context === "function" ? this.context() : this.context) ?? {};
    return JSON.parse(JSON.stringify(attached?.length ? { ...context, attachments: attached } : context));
  }

  async #usage() {
    try {
      const { steps } = await this.#session.usage();
      return usageByTurn(this.#session.state.items, steps);
    } catch (error) {
      this.#fail(error);
      return null;
    }
  }

  #clicked(event) {
    const { ms, endMs, assetId } = event.target.closest?.("button.time")?.dataset ?? {};
    if (ms === undefined) return;
    const end = endMs === undefined ? {} : { end_ms: Number(endMs) };
    this.#tell("seek", { ms: Number(ms), ...end, ...(assetId && { asset_id: assetId }) });
  }

  #pressed(event) {
    if (event.defaultPrevented || event.isComposing) return;
    const typing = event.target.matches?.("input, textarea");
    if (event.key === "Escape" && !this.menu.sheet.open && !this.composer.stopButton.hidden) this.#session.stop();
    else if (event.key === "?" && !typing) this.menu.shortcuts();
    else return;
    event.preventDefault();
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
}
