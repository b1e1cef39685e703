// The conversation in the page. Only rows whose item is another one than before are touched.

import { button, element, icon } from "./dom.js";
import { WaitingRow, rowOf } from "./rows.js";

// So many of the newest messages are set at once, the others when they come near.
const NEWEST = 24;
const NEAR = 60;

export class View {
  constructor(host) {
    const { t } = host;
    this.host = host;
    this.rows = new Map();
    this.queued = new Map();
    this.items = element("div", { className: "items" });
    this.queue = element("div", { className: "queue" });
    this.hint = element("div", { id: "hint", hidden: true });
    this.content = element("div", { className: "content" }, this.hint, this.items, this.queue);
    this.log = element("div", { id: "log", part: "log", role: "log", ariaLabel: t("log"), ariaLive: "off", tabIndex: 0 }, this.content);
    this.jump = Object.assign(button("", () => this.toEnd(), icon("down"), t("latest")), { id: "jump", hidden: true });
    this.node = element("div", { className: "scroll" }, this.log, this.jump);
    this.pinned = true;
    this.log.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.sizes = new ResizeObserver(() => this.stick());
    this.sights = new IntersectionObserver((seen) => this.wake(seen), { root: this.log, rootMargin: "800px" });
    this.sizes.observe(this.content);
    this.sizes.observe(this.log);
  }

  close() {
    this.sizes.disconnect();
    this.sights.disconnect();
  }

  draw({ items, waiting, runs, versions }) {
    const first = this.rows.size === 0;
    const keys = new Set();
    let place = this.items.firstChild;
    items.forEach((item, at) => {
      const key = `${item.kind} ${item.id}`;
      keys.add(key);
      let row = this.rows.get(key);
      if (!row) {
        row = rowOf(item, this.host, first && at < items.length - NEWEST);
        this.rows.set(key, row);
        if (row.lazy) this.sights.observe(row.node);
      }
      if (row.item !== item) row.show(item);
      row.item = item;
      if (row.node === place) place = place.nextSibling;
      else this.items.insertBefore(row.node, place);
    });
    prune(this.rows, keys);
    for (const row of this.rows.values()) row.versions?.(versions.filter(({ before }) => before === row.id));
    this.drawQueue(waiting, runs.length > 0);
    this.items.classList.toggle("busy", runs.length > 0);
    this.hint.hidden = items.length + waiting.length > 0;
    this.stick();
  }

  drawQueue(waiting, running) {
    prune(this.queued, new Set(waiting.map(({ id }) => id)));
    for (const held of waiting) {
      const row = this.queued.get(held.id) ?? new WaitingRow(held, this.host);
      this.queued.set(held.id, row);
      row.show(held, running);
      if (!row.node.isConnected) this.queue.append(row.node);
    }
  }

  tick() {
    for (const row of this.rows.values()) if (row.item.state === "running") row.tick();
  }

  editLast() {
    [...this.rows.values()].findLast(({ edit }) => edit)?.edit();
  }

  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.log;
    // What grows in between is no sign that somebody went up.
    this.pinned = scrollHeight - scrollTop - clientHeight < NEAR || (this.pinned && scrollTop >= this.top);
    this.top = scrollTop;
    this.jump.hidden = this.pinned;
  }

  stick() {
    if (this.pinned) this.log.scrollTop = this.log.scrollHeight;
    else this.jump.hidden = false;
  }

  toEnd() {
    this.pinned = true;
    this.jump.hidden = true;
    this.stick();
  }

  wake(seen) {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue;
      this.sights.unobserve(target);
      target.dispatchEvent(new Event("wake"));
    }
  }
}

function prune(rows, keys) {
  for (const [key, { node }] of rows) {
    if (keys.has(key)) continue;
    node.remove();
    rows.delete(key);
  }
}
