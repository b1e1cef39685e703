// While a run is at work, its next step shall know what is open by then, and not what was when it was asked.

import { pageContext } from "./media.js";
import { api } from "./state.js";

const EVERY = 1_000;

export function keepFresh(panel) {
  let timer = 0;
  let told = "";
  const tell = () => {
    const context = pageContext();
    const now = JSON.stringify(context);
    // Of several tabs it is the one that the person looks at.
    if (now === told || !document.hasFocus()) return;
    told = now;
    const path = `api/agent/threads/${encodeURIComponent(panel.thread)}/context`;
    api("PUT", path, { context }).catch(() => (told = ""));
  };
  panel.addEventListener("playhead-status", ({ detail: { state } }) => {
    if ((state === "running") === (timer !== 0)) return;
    clearInterval(timer);
    timer = state === "running" ? setInterval(tell, EVERY) : 0;
    told = JSON.stringify(pageContext()); // the message had it
  });
}
