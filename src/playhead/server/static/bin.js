// The media bin: the files of the project, and those on their way to it.

import { ask } from "./dialog.js";
import { addSample, loadAssets, ready, takeOut } from "./projects.js";
import { element } from "../panel/dom.js";
import { api, clock, mediaUrl, on, state, tell } from "./state.js";

const get = (id) => document.getElementById(id);
const ASSET = () => `playhead.asset.${state.project.id}`;
const waiting = [];
let sending = false;

export function openAsset(id) {
  const asset = state.assets.find((one) => one.id === id) ?? null;
  if (asset) localStorage.setItem(ASSET(), asset.id);
  if (asset?.id === state.asset?.id) return;
  state.asset = asset;
  tell("asset");
  mark();
}

function mark() {
  for (const card of get("media").children) {
    const button = card.querySelector("button");
    if (card.dataset.id === state.asset?.id) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

export function fail(text) {
  const close = element("button", { type: "button", className: "icon close", ariaLabel: "Dismiss" });
  const line = element("p", {}, text, close);
  close.onclick = () => line.remove();
  get("media-error").append(line);
}

// One card for each file. Those that are there stay, and keep the focus.
function draw() {
  const list = get("media");
  const cards = new Map([...list.children].map((card) => [card.dataset.id, card]));
  list.replaceChildren(...state.assets.map((asset) => cards.get(asset.id) ?? card(asset)));
  get("drop").hidden = state.assets.length > 0;
  showBin();
  if (!state.assets.includes(state.asset)) {
    const wanted = localStorage.getItem(ASSET());
    openAsset((state.assets.find(({ id }) => id === (state.asset?.id ?? wanted)) ?? state.assets.at(-1))?.id);
  }
  mark();
}

function card(asset) {
  const picture = element("span", { className: "picture" });
  const length = asset.duration == null ? asset.type : clock(asset.duration);
  const words = element("span", { className: "name" }, asset.name);
  const open = element(
    "button",
    { type: "button", className: "open", title: asset.name, onclick: () => openAsset(asset.id) },
    picture,
    words,
    element("span", { className: "length" }, length),
  );
  const remove = element("button", { type: "button", className: "icon close", ariaLabel: `Remove ${asset.name}` });
  remove.onclick = () => confirmRemoval(asset);
  const node = element("li", {}, open, remove);
  node.dataset.id = asset.id;
  if (asset.type !== "audio") showPicture(asset, picture);
  return node;
}

// The picture from the middle of the file says more than the first, which is often black.
async function showPicture({ id }, node) {
  const sheet = await api("GET", mediaUrl(id, "thumbnails")).catch(() => null);
  if (sheet?.count) place(node, id, sheet, Math.floor(sheet.count / 2), node.clientWidth || 112);
}

// Show one picture of a sheet in a node, `width` pixels wide.
export function place(node, id, sheet, number, width) {
  const scale = width / sheet.width;
  const columns = Math.min(sheet.columns, sheet.count);
  const [row, column] = [Math.floor(number / sheet.columns), number % sheet.columns];
  node.style.backgroundImage = `url("${mediaUrl(id, "thumbnails.jpg")}")`;
  node.style.backgroundSize = `${columns * sheet.width * scale}px auto`;
  node.style.backgroundPosition = `${-column * sheet.width * scale}px ${-row * sheet.height * scale}px`;
  node.style.aspectRatio = `${sheet.width} / ${sheet.height}`;
}

function confirmRemoval({ id, name }) {
  ask({
    title: `Remove “${name}”?`,
    text: "It is deleted, unless another project has it. Its edited transcript goes with it.",
    yes: "Remove",
    act: async () => {
      await takeOut(id);
      await loadAssets();
    },
  });
}

// ---------------------------------------------------------------- uploads

function showBin() {
  get("bin").hidden = state.assets.length + get("uploads").children.length === 0;
}

export function upload(files) {
  for (const file of files) {
    const bar = element("progress", { max: 1, value: 0, ariaLabel: file.name });
    const cancel = element("button", { type: "button", className: "icon close", ariaLabel: `Cancel ${file.name}` });
    const row = element("li", {}, element("span", { className: "name" }, file.name), bar, cancel);
    const job = { file, bar, row, request: null };
    cancel.onclick = () => (job.request ? job.request.abort() : done(job));
    waiting.push(job);
    get("uploads").append(row);
  }
  showBin();
  if (!sending) sendNext();
}

function done(job) {
  job.row.remove();
  if (waiting.includes(job)) waiting.splice(waiting.indexOf(job), 1);
  showBin();
}

// One after the other: the first is there to work with while the last is still on its way.
async function sendNext() {
  sending = true;
  await ready;
  const job = waiting.shift();
  sending = job !== undefined;
  if (!sending) return;
  const request = (job.request = new XMLHttpRequest()); // fetch does not tell how far an upload is
  request.upload.onprogress = ({ loaded, total }) => (job.bar.value = loaded / total);
  request.onloadend = async () => {
    const body = parsed(request.responseText);
    if (request.status === 201) await loadAssets().then(() => openAsset(body.id), (error) => fail(error.message));
    else if (!job.aborted) fail(body?.error ?? `The upload of ${job.file.name} broke off. Is the server still there?`);
    done(job);
    sendNext();
  };
  request.onabort = () => (job.aborted = true);
  const query = new URLSearchParams({ name: job.file.name, project: state.project.id });
  request.open("POST", `api/media?${query}`);
  request.send(job.file);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

async function trySample() {
  get("sample").disabled = true;
  try {
    await ready;
    const { id } = await addSample();
    await loadAssets();
    openAsset(id);
    document.dispatchEvent(new CustomEvent("ask", { detail: "Transcribe this" }));
  } catch (error) {
    fail(error.message);
  }
  get("sample").disabled = false;
}

export function setUpBin() {
  on("assets", draw);
  get("file").addEventListener("change", ({ target }) => {
    upload([...target.files]);
    target.value = "";
  });
  get("sample").addEventListener("click", trySample);
  const over = (is) => get("stage").classList.toggle("over", is);
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    over(true);
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget ?? over(false));
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    over(false);
    upload([...event.dataTransfer.files]);
  });
}
