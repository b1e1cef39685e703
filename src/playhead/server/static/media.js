// The video page: its parts joined, and what the chat beside it may know and do.

import { fail, setUpBin } from "./bin.js";
import { setUpChanges } from "./changes.js";
import { playbackTime, seek, setUpPlayer, showCaptions } from "./player.js";
import { currentProject, currentThread, keepThread, loadProjects, setUpProjects } from "./projects.js";
import { setUpSearch } from "./search.js";
import { element } from "../panel/dom.js";
import { api, mediaUrl, on, state, tell } from "./state.js";
import { setUpTranscript, update } from "./transcript.js";

export { currentThread, keepThread };

const get = (id) => document.getElementById(id);
const FORMATS = ["srt", "vtt", "txt", "json"];

// What is open, fresh whenever it is asked for: the AgentContext of a message. The scene is the file
// that is open, with what is selected in it as a media fragment: `id#t=2.5,7`.
export function pageContext() {
  const now = playbackTime();
  const { selection, asset, assets } = state;
  const chosen = selection ? `#t=${selection.start.toFixed(2)},${selection.end.toFixed(2)}` : "";
  return {
    projectId: currentProject(),
    activeSceneId: asset ? `${asset.id}${chosen}` : null,
    mediaAssets: assets.map(({ id, name, type, duration }) => ({ id, name, type, duration })),
    playbackTimeMs: now === null ? null : Math.round(now * 1000),
  };
}

// The tools that the page itself executes: what they return is the result.
export const clientTools = {
  async seek({ seconds, assetId }) {
    if (assetId && !state.assets.some(({ id }) => id === assetId)) {
      throw new Error(`There is no media ${assetId} in this project.`);
    }
    if (!state.asset) throw new Error("No media is open: ask the user to add a video first.");
    await seek(seconds * 1000, assetId ?? state.asset.id);
    return { assetId: state.asset.id, seconds: playbackTime() };
  },
};

// A tool has ended: the page shows what it made.
function take({ tool, result }) {
  const mine = result?.assetId && result.assetId === state.asset?.id;
  if (tool === "transcribe_video" && mine) loadTranscript();
  if (tool === "correct_transcript" && mine) refresh();
  if (tool === "make_captions" && mine && result.format === "vtt") showCaptions(result.url);
}

async function loadTranscript() {
  const { asset } = state;
  const response = asset && (await fetch(mediaUrl(asset.id, "transcript")).catch(() => null));
  const found = response?.ok ? await response.json() : null;
  if (state.asset === asset) showTranscript(found);
}

// Of the same transcript only what changed is drawn anew: who reads it stays where they are.
async function refresh() {
  const { asset } = state;
  const found = await api("GET", mediaUrl(asset.id, "transcript")).catch(() => null);
  if (state.asset === asset && found && !(state.transcript && (await update(found)))) showTranscript(found);
}

function showTranscript(found) {
  state.transcript = found;
  const { asset } = state;
  const there = found !== null && found.segments.length > 0;
  get("transcript").hidden = !asset || asset.type === "image";
  get("search").hidden = get("captions").hidden = get("keys").hidden = !there;
  get("no-lines").hidden = there;
  get("no-lines").firstChild.textContent = found ? "No speech was found in it." : "There is no transcript yet.";
  get("transcribe").hidden = found !== null;
  const link = (format) =>
    element("a", { href: mediaUrl(asset.id, `captions.${format}`), download: "" }, format.toUpperCase());
  get("captions").replaceChildren(...(there ? FORMATS.map(link) : []));
  showCaptions(there ? captionsUrl() : null);
  tell("transcript");
}

// A browser reads a track once: after an edit it is another one.
const captionsUrl = () => `${mediaUrl(state.asset.id, "captions.vtt")}?${new URLSearchParams({ at: Date.now() })}`;

export function loadMedia() {
  loadProjects().catch((error) => fail(error.message));
}

export function setUpMedia() {
  setUpProjects();
  setUpBin();
  setUpPlayer();
  setUpTranscript();
  setUpSearch();
  setUpChanges();
  on("asset", () => {
    showTranscript(null);
    loadTranscript();
  });
  on("written", () => showCaptions(captionsUrl()));
  on("stale", refresh);
  get("transcribe").addEventListener("click", () => {
    document.dispatchEvent(new CustomEvent("ask", { detail: "Transcribe this" }));
  });
  document.addEventListener("playhead-result", ({ detail }) => take(detail));
  document.addEventListener("seek", ({ detail: { ms, asset_id: id } }) => {
    if (state.asset) seek(ms, state.assets.some((asset) => asset.id === id) ? id : state.asset.id);
  });
}
