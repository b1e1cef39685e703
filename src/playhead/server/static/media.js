// The player, the files, and the transcript beside them.

import { answer } from "../panel/connection.js";
import { clock, element } from "../panel/dom.js";

const get = (id) => document.getElementById(id);
const player = get("player");
const picker = get("media");
let assets = [];
let segments = [];

export function context() {
  return {
    projectId: "playhead",
    activeSceneId: null,
    mediaAssets: assets.map(({ id, name, type, duration }) => ({ id, name, type, duration })),
    playbackTimeMs: player.hidden ? null : Math.round(player.currentTime * 1000),
  };
}

function transcriptLines(segments, assetId) {
  return segments.map((segment) => {
    const button = element(
      "button",
      { type: "button", onclick: () => seek(assetId, segment.start) },
      element("span", { className: "time" }, clock(segment.start)),
      ` ${segment.text.trim()}`,
    );
    return element("li", {}, button);
  });
}

// In the file that is open, if none is named.
export async function seek(assetId, seconds) {
  if (assetId && picker.value !== assetId && assets.some((asset) => asset.id === assetId)) await show(assetId);
  player.currentTime = seconds;
}

export async function loadMedia(selected) {
  try {
    assets = (await answer(await fetch("api/media"))).items;
    const options = assets.map((asset) => element("option", { value: asset.id }, asset.name));
    picker.replaceChildren(...options);
    get("media-bar").hidden = assets.length === 0;
    if (assets.length) await show(selected ?? assets.at(-1).id);
  } catch (error) {
    fail(error.message);
  }
}

async function show(assetId) {
  picker.value = assetId;
  player.hidden = false;
  get("drop").hidden = true;
  player.src = `api/media/${encodeURIComponent(assetId)}/content`;
  showTranscript(assetId, []);
  const response = await fetch(`api/media/${encodeURIComponent(assetId)}/transcript`);
  if (response.ok && picker.value === assetId) showTranscript(assetId, (await response.json()).segments);
}

function showTranscript(assetId, found) {
  segments = found;
  get("transcript").hidden = found.length === 0;
  get("lines").replaceChildren(...transcriptLines(found, assetId));
  const links = ["vtt", "srt", "txt", "json"].map((format) =>
    element("a", { href: `api/media/${encodeURIComponent(assetId)}/captions.${format}`, download: "" }, format),
  );
  get("captions").replaceChildren("Download", ...links);
  const track = { kind: "captions", label: "Transcript", src: links[0].href };
  player.replaceChildren(...(found.length ? [element("track", track)] : []));
}

// What a tool gave, if it is the transcript of the file that is open.
export function transcribed(result) {
  if (Array.isArray(result?.segments) && result.assetId === picker.value) showTranscript(result.assetId, result.segments);
}

function follow() {
  const at = segments.findIndex(({ start, end }) => player.currentTime >= start && player.currentTime < end);
  [...get("lines").children].forEach((line, index) => {
    if (index === at) line.setAttribute("aria-current", "true");
    else line.removeAttribute("aria-current");
  });
}

function upload(file) {
  const bar = get("upload");
  const request = new XMLHttpRequest();  // fetch does not tell how far an upload is
  fail("");
  bar.hidden = false;
  bar.value = 0;
  request.upload.onprogress = ({ loaded, total }) => (bar.value = loaded / total);
  request.onloadend = () => {
    bar.hidden = true;
    let body = null;
    try {
      body = JSON.parse(request.responseText);
    } catch {
      // told below
    }
    if (request.status === 201) loadMedia(body.id);
    else fail(body?.error ?? "The upload broke off. Is the server still there?");
  };
  request.open("POST", `api/media?name=${encodeURIComponent(file.name)}`);
  request.send(file);
}

function fail(text) {
  get("media-error").textContent = text;
  get("media-error").hidden = !text;
}

export function setUpMedia() {
  const frame = get("frame");
  get("transcript").open = matchMedia("(min-width: 56rem)").matches;
  get("file").addEventListener("change", ({ target }) => {
    if (target.files.length) upload(target.files[0]);
    target.value = "";
  });
  picker.addEventListener("change", () => show(picker.value));
  player.addEventListener("timeupdate", follow);
  player.addEventListener("error", () => {
    const heard = assets.find(({ id }) => id === picker.value)?.hasAudio;
    fail(`This browser cannot play the file. ${heard ? "It can still be transcribed." : "There is no sound in it."}`);
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    frame.classList.add("over");
  });
  document.addEventListener("dragleave", () => frame.classList.remove("over"));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    frame.classList.remove("over");
    if (event.dataTransfer.files.length) upload(event.dataTransfer.files[0]);
  });
}
