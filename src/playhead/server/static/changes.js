// What was changed in the transcript, by whom, and taking it back: the last change first, and all that the
// assistant wrote in one turn at once.

import { fail } from "./bin.js";
import { projectUrl } from "./projects.js";
import { api, breather, mediaUrl, on, state, tell } from "./state.js";
import { bring, follow, lineAt, reach } from "./transcript.js";

const get = (id) => document.getElementById(id);
const NEW = 2_500;
let changes = []; // the newest first: { id, by, lines: [{ number, before, text }] }
let byAgent = new Set(); // the lines that the assistant wrote last
let shown = 0;
let reading = 0;

async function read() {
  const mine = ++reading;
  const { asset } = state;
  const found = state.transcript && (await api("GET", mediaUrl(asset.id, "transcript/changes")).catch(() => null));
  if (mine !== reading) return false;
  const fresh = found?.changes[0]?.id !== changes[0]?.id;
  changes = found?.changes ?? [];
  if (fresh) shown = 0;
  await mark(mine);
  show();
  return fresh;
}

// Who wrote a line last is who changed it.
async function mark(mine) {
  const writers = new Map();
  for (const { by, lines } of changes) for (const { number } of lines) if (!writers.has(number)) writers.set(number, by);
  const now = new Set([...writers.keys()].filter((number) => writers.get(number) === "agent"));
  const breathe = breather();
  for (const number of byAgent) if (!now.has(number)) paint(number, false);
  for (const number of now) {
    paint(number, true);
    await breathe();
    if (mine !== reading) return;
  }
  byAgent = now;
  const { segments } = state.transcript ?? { segments: [] };
  tell("changed", [...now].map((number) => segments[number]?.start).filter((start) => start !== undefined));
}

function paint(number, is) {
  const line = lineAt(number);
  if (!line) return;
  line.classList.toggle("by-agent", is);
  const text = line.lastChild;
  const heard = text.title.replace(/^Changed by the assistant\. /, "");
  text.title = is ? `Changed by the assistant. ${heard}` : heard;
}

function show() {
  const [last] = changes;
  get("changed").hidden = !last;
  if (!last) return;
  const count = last.lines.length === 1 ? "a line" : `${last.lines.length} lines`;
  const said = last.by === "agent" ? `The assistant changed ${count}` : `You changed ${count}`;
  if (get("changed-said").textContent !== said) get("changed-said").textContent = said;
}

// Each time the next line of the last change.
function goTo() {
  const lines = changes[0]?.lines ?? [];
  const line = lines.length && lineAt(lines[shown++ % lines.length].number);
  if (!line) return;
  follow(false);
  reach(Number(line.dataset.index));
  bring(line);
  const outlineOffset = "-2px";
  line.animate([{ outline: "2px solid var(--accent)", outlineOffset }, { outline: "2px solid transparent", outlineOffset }], NEW);
}

async function undo() {
  const [last] = changes;
  if (!last || get("undo").disabled) return;
  get("undo").disabled = true;
  try {
    const { lines } = await api("POST", projectUrl(state.project.id, "/undo"), { change: last.id });
    if (lines < last.lines.length) fail("Lines that were written anew since then stay as they are.");
  } catch (error) {
    fail(error.message);
  }
  get("undo").disabled = false;
  tell("stale");
}

export function setUpChanges() {
  on("transcript", () => {
    [changes, byAgent] = [[], new Set()];
    show();
  });
  on("lines", read);
  // What the assistant did is looked at; what a person did is before their eyes.
  on("written", async () => {
    if ((await read()) && changes[0]?.by === "agent") goTo();
  });
  // What was changed or taken back elsewhere is seen when somebody looks here again.
  document.addEventListener("visibilitychange", async () => {
    if (!document.hidden && (await read())) tell("stale");
  });
  get("undo").addEventListener("click", undo);
  get("show-changed").addEventListener("click", goTo);
  document.addEventListener("keydown", (event) => {
    const writes = event.composedPath()[0].closest?.("input, textarea, [contenteditable], dialog");
    if (event.key.toLowerCase() !== "z" || !(event.ctrlKey || event.metaKey) || event.shiftKey || writes) return;
    if (!changes.length) return;
    event.preventDefault();
    undo();
  });
}
