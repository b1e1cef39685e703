// The player: the file that is open, its timeline, and the one way to move the playhead.

import { fail, openAsset, place } from "./bin.js";
import { element } from "../panel/dom.js";
import { api, clock, mediaUrl, on, state, tell } from "./state.js";
import { Waveform } from "./waveform.js";

const get = (id) => document.getElementById(id);
const SPEEDS = [1, 1.25, 1.5, 2, 0.75];
const STEP = 5;
const player = get("player");
let wave = null;
let sheet = null;
let pointer = null; // where it is over the timeline

export const playbackTime = () => (state.asset ? player.currentTime : null);
const duration = () => (Number.isFinite(player.duration) ? player.duration : (state.asset?.duration ?? 0));

// The one way to move the playhead: to a time, in milliseconds, of the open file or of another.
export async function seek(ms, assetId = state.asset?.id) {
  if (assetId !== state.asset?.id && state.assets.some(({ id }) => id === assetId)) {
    openAsset(assetId);
    await new Promise((resolve) => {
      for (const name of ["loadedmetadata", "error"]) player.addEventListener(name, resolve, { once: true });
    });
  }
  player.currentTime = Math.max(0, ms / 1000);
  moved();
}

export const play = () => player.play().catch(() => {});

function show(asset) {
  const heard = asset !== null && asset.type !== "image";
  get("timeline").hidden = !heard;
  player.hidden = asset === null;
  get("listening").hidden = asset?.type !== "audio";
  get("listening").textContent = asset?.name ?? "";
  sheet = null;
  wave.show({ peaks: [], marks: [], changes: [], range: null, played: 0 });
  player.replaceChildren();
  if (asset === null) return player.removeAttribute("src");
  const url = mediaUrl(asset.id, "content");
  player.poster = heard ? "" : url;
  if (heard) player.src = url;
  else player.removeAttribute("src");
  get("length").textContent = clock(asset.duration);
  moved();
  draw(asset);
}

async function draw({ id }) {
  const current = () => state.asset?.id === id;
  const peaks = await api("GET", mediaUrl(id, "waveform")).catch(() => null);
  if (current() && peaks) wave.show({ peaks: peaks.peaks });
  const found = await api("GET", mediaUrl(id, "thumbnails")).catch(() => null);
  if (!current() || !found?.count) return;
  sheet = found;
  if (pointer) peek(pointer);
}

// The captions on the video are those of a file of the server: a transcript's, or others of it.
export function showCaptions(url) {
  player.replaceChildren(...(url ? [element("track", { kind: "captions", label: "Transcript", src: url })] : []));
  setCaptions(get("show-captions").ariaPressed === "true");
}

function setCaptions(shown) {
  get("show-captions").ariaPressed = String(shown);
  for (const track of player.textTracks) track.mode = shown ? "showing" : "hidden";
}

// ---------------------------------------------------------------- time

function moved() {
  const [now, whole] = [player.currentTime, duration()];
  const part = whole ? Math.min(1, now / whole) : 0;
  wave.show({ played: part });
  get("needle").style.transform = `translateX(${part * get("wave").clientWidth}px)`;
  get("now").textContent = clock(now);
  const slider = get("wave");
  slider.ariaValueMax = String(Math.round(whole));
  slider.ariaValueNow = String(Math.round(now));
  slider.ariaValueText = `${clock(now)} of ${clock(whole)}`;
  tell("time", now);
}

function run() {
  if (player.paused) return;
  moved();
  requestAnimationFrame(run);
}

// ---------------------------------------------------------------- the timeline

const partAt = ({ clientX }) => {
  const { left, width } = get("wave").getBoundingClientRect();
  return Math.min(1, Math.max(0, (clientX - left) / width));
};

function peek(event) {
  const part = partAt(event);
  const box = get("peek");
  box.hidden = false;
  get("peek-time").textContent = clock(part * duration());
  get("peek-picture").hidden = sheet === null;
  if (sheet) {
    const number = Math.min(sheet.count - 1, Math.floor((part * duration()) / sheet.every));
    place(get("peek-picture"), state.asset.id, sheet, number, sheet.width);
  }
  const room = get("wave").clientWidth - box.offsetWidth;
  const wanted = part * get("wave").clientWidth - box.offsetWidth / 2;
  box.style.transform = `translateX(${Math.max(0, Math.min(room, wanted))}px)`;
}

function setUpTimeline() {
  const line = get("wave");
  const to = (event) => seek(partAt(event) * duration() * 1000);
  line.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    line.setPointerCapture(event.pointerId);
    to(event);
  });
  line.addEventListener("pointermove", (event) => {
    pointer = event;
    peek(event);
    if (line.hasPointerCapture(event.pointerId)) to(event);
  });
  line.addEventListener("pointerleave", () => {
    pointer = null;
    get("peek").hidden = true;
  });
  line.addEventListener("keydown", (event) => {
    const now = player.currentTime;
    const places = {
      ArrowLeft: now - STEP,
      ArrowRight: now + STEP,
      PageDown: now - 6 * STEP,
      PageUp: now + 6 * STEP,
      Home: 0,
      End: duration(),
    };
    if (!(event.key in places)) return;
    event.preventDefault();
    seek(places[event.key] * 1000);
  });
}

function setUpTransport() {
  const toggle = () => (player.paused ? play() : player.pause());
  get("play").addEventListener("click", toggle);
  player.addEventListener("click", toggle);
  get("mute").addEventListener("click", () => (player.muted = !player.muted));
  player.addEventListener("volumechange", () => (get("mute").ariaPressed = String(player.muted)));
  get("speed").addEventListener("click", () => {
    player.playbackRate = SPEEDS[(SPEEDS.indexOf(player.playbackRate) + 1) % SPEEDS.length];
    get("speed").textContent = `${player.playbackRate}×`;
    get("speed").ariaLabel = `${player.playbackRate}× speed`;
  });
  get("show-captions").addEventListener("click", ({ target }) => setCaptions(target.ariaPressed !== "true"));
  get("fullscreen").addEventListener("click", () => player.requestFullscreen?.().catch(() => {}));
  document.addEventListener("keydown", (event) => {
    const busy = event.target.closest("button, input, textarea, select, [role=button], [contenteditable], dialog");
    if (event.key !== " " || busy || !state.asset) return;
    event.preventDefault();
    toggle();
  });
}

export function setUpPlayer() {
  wave = new Waveform(get("wave").querySelector("canvas"));
  setUpTimeline();
  setUpTransport();
  for (const name of ["seeked", "timeupdate", "loadedmetadata"]) player.addEventListener(name, moved);
  player.addEventListener("play", run);
  for (const name of ["play", "pause"]) {
    player.addEventListener(name, () => {
      get("play").ariaLabel = player.paused ? "Play" : "Pause";
      get("play").classList.toggle("playing", !player.paused);
    });
  }
  player.addEventListener("error", () => {
    if (!player.getAttribute("src")) return;
    const heard = state.asset?.hasAudio;
    fail(`This browser cannot play the file. ${heard ? "It can still be transcribed." : "There is no sound in it."}`);
  });
  on("asset", () => show(state.asset));
  on("hits", (times) => wave.show({ marks: times.map((time) => time / (duration() || 1)) }));
  on("changed", (times) => wave.show({ changes: times.map((time) => time / (duration() || 1)) }));
  on("selection", () => {
    const [chosen, whole] = [state.selection, duration()];
    wave.show({ range: chosen && whole ? { start: chosen.start / whole, end: chosen.end / whole } : null });
  });
  new ResizeObserver(moved).observe(get("wave"));
}
