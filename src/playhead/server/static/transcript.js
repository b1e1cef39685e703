// The transcript beside the player. An hour has thousands of lines: they are made a few at a time, in
// groups that the browser lays out only where they are seen.

import { seek, play, playbackTime } from "./player.js";
import { editLine } from "./editing.js";
import { element } from "../panel/dom.js";
import { breather, clock, on, state, tell } from "./state.js";
import { SLACK, characterAt, highlight, rangeIn, textOf, timeAt, wordAt } from "./words.js";

const get = (id) => document.getElementById(id);
const GROUP = 20;
const CORRECTIONS = 8; // frames
const list = get("lines");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
export const visible = new Set(); // the groups that are near the eye
let making = 0;
let following = true;
let current = -1;
let reached = -1; // the line that the Tab key comes to

const watcher = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? visible.add(target) : visible.delete(target);
    tell("visible");
  },
  { root: list, rootMargin: "200px" },
);

export const lineAt = (index) => list.children[Math.floor(index / GROUP)]?.children[index % GROUP] ?? null;
export const textNode = (line) => line.lastChild.firstChild;
export const segmentOf = (line) => state.transcript.segments[Number(line.dataset.index)];

// ---------------------------------------------------------------- making

async function draw() {
  const mine = ++making;
  const breathe = breather();
  const segments = state.transcript?.segments ?? [];
  watcher.disconnect();
  visible.clear();
  list.replaceChildren();
  highlight("word", []);
  current = reached = -1;
  follow(true);
  for (let first = 0; first < segments.length; first += GROUP) {
    const group = element("ol", { className: "group" });
    group.append(...segments.slice(first, first + GROUP).map((segment, i) => drawLine(segment, first + i)));
    list.append(group);
    watcher.observe(group);
    await breathe();
    if (mine !== making) return;
  }
  if (segments.length) reach(0);
  mark(playbackTime() ?? 0);
  tell("lines");
}

function drawLine(segment, index) {
  const text = element("span", { className: "text", role: "button", tabIndex: -1 }, textOf(segment));
  const line = element("li", { className: "line" }, element("span", { className: "time" }, clock(segment.start)), text);
  line.dataset.index = index;
  line.classList.toggle("edited", segment.said !== undefined);
  if (segment.said !== undefined) text.title = `Heard: ${segment.said.trim()}`;
  return line;
}

// A line was written anew.
export function redraw(index, segment) {
  state.transcript.segments[index] = segment;
  const line = drawLine(segment, index);
  const former = lineAt(index);
  if (former.classList.contains("by-agent")) line.classList.add("by-agent");
  if (former.ariaCurrent) line.ariaCurrent = "true";
  former.replaceWith(line);
  if (reached === index) line.lastChild.tabIndex = 0;
  tell("edited", index);
}

// The same lines, some of them written anew elsewhere; false if it is another transcript. A line that is
// being written in stays open.
export async function update({ segments }) {
  const mine = making;
  const former = state.transcript.segments;
  if (segments.length !== former.length) return false;
  const breathe = breather();
  for (const [index, segment] of segments.entries()) {
    if (segment.text === former[index].text && segment.said === former[index].said) continue;
    if (lineAt(index)?.classList.contains("editing")) former[index] = segment;
    else redraw(index, segment);
    await breathe();
    if (mine !== making) return true;
  }
  tell("written");
  return true;
}

// ---------------------------------------------------------------- following

function indexAt(time) {
  const segments = state.transcript?.segments ?? [];
  let [low, high] = [0, segments.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (segments[middle].start <= time + SLACK) low = middle + 1;
    else high = middle;
  }
  return low > 0 && time < segments[low - 1].end + 0.05 ? low - 1 : -1;
}

function mark(time) {
  const index = indexAt(time);
  if (index !== current) {
    lineAt(current)?.removeAttribute("aria-current");
    current = index;
    const line = lineAt(index);
    line?.setAttribute("aria-current", "true");
    if (line && following) bring(line);
  }
  const line = lineAt(index);
  const word = line && !line.classList.contains("editing") ? wordAt(segmentOf(line), time) : null;
  highlight("word", word && textNode(line) ? [rangeIn(textNode(line), word.from, word.to)] : []);
}

let brought = 0;

// To the middle, by the list's own scrolling: the page around it stays where it is. How high lines are that
// were not drawn yet is a guess, which is put right once they are there.
export function bring(line, tries = CORRECTIONS, mine = ++brought) {
  if (mine !== brought || !line.isConnected) return;
  const top = line.getBoundingClientRect().top - list.getBoundingClientRect().top;
  const wanted = list.scrollTop + top - (list.clientHeight - line.offsetHeight) / 2;
  const to = Math.max(0, Math.min(wanted, list.scrollHeight - list.clientHeight));
  const way = Math.abs(to - list.scrollTop);
  const jump = calm.matches || tries < CORRECTIONS || way < 1 || way > 2 * list.clientHeight;
  list.scrollTo({ top: to, behavior: jump ? "instant" : "smooth" });
  const again = () => bring(line, tries - 1, mine);
  if (!jump) list.addEventListener("scrollend", again, { once: true });
  else if (tries) requestAnimationFrame(again);
}

export function follow(is) {
  brought++; // whoever scrolls is not brought back
  following = is;
  get("follow").hidden = is || !state.transcript?.segments.length;
  if (is && lineAt(current)) bring(lineAt(current));
}

// ---------------------------------------------------------------- moving and choosing

export function reach(index, focus = false) {
  const line = lineAt(index);
  if (!line) return;
  if (lineAt(reached)) lineAt(reached).lastChild.tabIndex = -1;
  reached = index;
  line.lastChild.tabIndex = 0;
  if (focus) line.lastChild.focus();
}

function clicked(event) {
  const line = event.target.closest(".line");
  if (!line || line.classList.contains("editing")) return;
  if (!getSelection().isCollapsed) return; // words were chosen, not a place
  const [node, offset] = event.detail ? characterAt(event) : [null, 0];
  const segment = segmentOf(line);
  reach(Number(line.dataset.index));
  seek((node === textNode(line) ? timeAt(segment, offset) : segment.start) * 1000);
  follow(true);
}

function keyed(event) {
  const line = event.target.closest(".line");
  if (!line || line.classList.contains("editing")) return;
  const index = Number(line.dataset.index);
  const keys = {
    ArrowDown: () => reach(index + 1, true),
    ArrowUp: () => reach(index - 1, true),
    Home: () => reach(0, true),
    End: () => reach(state.transcript.segments.length - 1, true),
    Enter: () => editLine(line),
    " ": () => seek(segmentOf(line).start * 1000).then(play),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
}

// What is chosen in the transcript stays chosen when the person goes on to write a message.
function choose() {
  const selection = getSelection();
  const at = (node) => (node?.nodeType === Node.TEXT_NODE ? node.parentElement : node)?.closest?.(".line");
  const [first, last] = [at(selection.anchorNode), at(selection.focusNode)];
  if (!first || !last || !list.contains(first) || !list.contains(last) || first.querySelector("textarea")) return;
  if (selection.isCollapsed) return setSelection(null);
  const range = selection.getRangeAt(0);
  const [from, to] = [at(range.startContainer) ?? first, at(range.endContainer) ?? last];
  const exact = (line, node, offset, or) => (node === textNode(line) ? timeAt(segmentOf(line), offset) : or);
  setSelection({
    start: exact(from, range.startContainer, range.startOffset, segmentOf(from).start),
    end: wordEnd(to, range),
    text: String(selection).replace(/\s+/g, " ").trim(),
  });
}

function wordEnd(line, range) {
  const segment = segmentOf(line);
  if (range.endContainer !== textNode(line)) return segment.end;
  const text = textOf(segment);
  return range.endOffset >= text.length ? segment.end : timeAt(segment, range.endOffset + 1);
}

function setSelection(chosen) {
  state.selection = chosen;
  get("selection").hidden = chosen === null;
  if (chosen) get("selection").firstChild.textContent = `Selected ${clock(chosen.start)} – ${clock(chosen.end)}`;
  tell("selection");
}

export function setUpTranscript() {
  on("transcript", draw);
  on("asset", () => setSelection(null));
  on("time", mark);
  list.addEventListener("click", clicked);
  list.addEventListener("dblclick", ({ target }) => {
    const line = target.closest(".line");
    if (line) editLine(line);
  });
  list.addEventListener("keydown", keyed);
  for (const name of ["wheel", "touchmove"]) list.addEventListener(name, () => follow(false), { passive: true });
  list.addEventListener("pointerdown", ({ target }) => target === list && follow(false)); // its scroll bar
  list.addEventListener("keydown", ({ key }) => key.startsWith("Page") && follow(false));
  document.addEventListener("selectionchange", choose);
  // What is attached stands in the message: the model reads it, and so does whoever comes later.
  get("attach").addEventListener("click", () => {
    const { start, end, text } = state.selection;
    const { id: assetId, name } = state.asset;
    const detail = { label: `${clock(start)} – ${clock(end)} of ${name}`, assetId, start, end, text };
    document.dispatchEvent(new CustomEvent("attach", { detail }));
  });
  get("selection").querySelector(".icon").addEventListener("click", () => {
    getSelection().removeAllRanges();
    setSelection(null);
  });
  get("follow").addEventListener("click", () => follow(true));
}
