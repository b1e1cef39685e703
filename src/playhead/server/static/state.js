// What the page shows, and who wants to know when it changes.

import { answer } from "../panel/connection.js";

export { clock } from "../panel/dom.js";

export const state = {
  project: null,
  projects: [],
  assets: [],
  asset: null, // the file that is open
  transcript: null, // of the open file
  selection: null, // { start, end } of the transcript, in seconds
};

const listeners = new EventTarget();

// Names: "assets", "asset", "transcript", "selection", "visible", "lines", "edited" (a line), "written" (all of
// them), "stale", "changed", "hits", "time".
export const on = (name, listener) => listeners.addEventListener(name, ({ detail }) => listener(detail));
export const tell = (name, detail) => listeners.dispatchEvent(new CustomEvent(name, { detail }));

// Ask the server, and return its JSON; null for an answer without any.
export async function api(method, path, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const response = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  return response.status === 204 ? null : answer(response);
}

export const mediaUrl = (id, what) => `api/media/${encodeURIComponent(id)}/${what}`;

// Give way to what the person does: nothing here may hold up the page for long.
export function breather(longest = 8) {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < longest) return;
    await new Promise((resolve) => setTimeout(resolve));
    since = performance.now();
  };
}
