// Searching the transcript as one types: every place is counted and can be gone to, those near the eye
// are marked. It gives way every few milliseconds, so that an hour never holds up the page.

import { bring, follow, lineAt, segmentOf, textNode, visible } from "./transcript.js";
import { breather, on, state, tell } from "./state.js";
import { highlight, rangeIn, textOf } from "./words.js";

const get = (id) => document.getElementById(id);
let hits = []; // { line, from, to }, in the order of the text
let byLine = new Map();
let at = -1;
let folded = []; // of each line, [text, places], once it was looked at
let searching = 0;

// Without case and accents. `places` says which character each one was, where that is not the same one.
export function fold(text) {
  if (/^[\x20-\x7e]*$/.test(text)) return [text.toLowerCase(), null];
  let plain = "";
  const places = [];
  let place = 0;
  for (const character of text) {
    const made = character.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
    for (let i = 0; i < made.length; i++) places.push(place);
    plain += made;
    place += character.length;
  }
  places.push(place);
  return [plain, places];
}

export function findIn([text, places], query) {
  const found = [];
  for (let i = text.indexOf(query); i >= 0; i = text.indexOf(query, i + query.length)) {
    const end = i + query.length;
    found.push(places ? [places[i], places[end]] : [i, end]);
  }
  return found;
}

async function search() {
  const mine = ++searching;
  const query = fold(get("query").value.trim().replace(/\s+/g, " "))[0];
  const breathe = breather();
  const [found, lines] = [[], new Map()];
  const segments = state.transcript?.segments ?? [];
  for (let line = 0; query && line < segments.length; line++) {
    folded[line] ??= fold(textOf(segments[line]));
    const places = findIn(folded[line], query);
    if (places.length) lines.set(line, places);
    for (const [from, to] of places) found.push({ line, from, to });
    await breathe();
    if (mine !== searching) return;
  }
  [hits, byLine] = [found, lines];
  const now = hits.findIndex(({ line }) => segments[line].end >= (document.getElementById("player").currentTime || 0));
  at = hits.length ? Math.max(0, now) : -1;
  tell("hits", timesOf(hits, segments));
  show();
}

// A mark on the timeline for each line that has a hit, and no more than can be told apart.
function timesOf(found, segments) {
  const times = new Set(found.map(({ line }) => Math.round(segments[line].start)));
  return [...times].slice(0, 1000);
}

function show() {
  const query = get("query").value.trim();
  get("hits").textContent = query ? (hits.length ? `${at + 1} of ${hits.length}` : "Not said") : "";
  get("previous").disabled = get("next").disabled = hits.length === 0;
  if (hits[at]) {
    follow(false);
    bring(lineAt(hits[at].line));
  }
  mark();
}

function mark() {
  const ranges = [];
  for (const group of visible) {
    for (const line of group.children) {
      const node = textNode(line);
      for (const [from, to] of byLine.get(Number(line.dataset.index)) ?? []) if (node) ranges.push(rangeIn(node, from, to));
    }
  }
  highlight("hit", ranges);
  const hit = hits[at];
  const node = hit && lineAt(hit.line) && textNode(lineAt(hit.line));
  highlight("hit-current", node ? [rangeIn(node, hit.from, hit.to)] : []);
}

function step(by) {
  if (!hits.length) return;
  at = (at + by + hits.length) % hits.length;
  show();
}

export function setUpSearch() {
  const field = get("query");
  field.addEventListener("input", search);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && field.value) {
      event.preventDefault();
      field.value = "";
      search();
    } else if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
  });
  get("next").addEventListener("click", () => step(1));
  get("previous").addEventListener("click", () => step(-1));
  on("visible", mark);
  on("transcript", () => {
    folded = [];
    [hits, byLine, at] = [[], new Map(), -1];
  });
  on("lines", () => get("query").value && search());
  on("edited", (line) => {
    folded[line] = undefined;
    if (get("query").value) search();
  });
}
