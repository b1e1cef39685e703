// The page: media on the one side, the conversation about them on the other.

import { fail } from "./bin.js";
import { clientTools, currentThread, keepThread, loadMedia, pageContext, setUpMedia } from "./media.js";
import { keepFresh } from "./fresh.js";
import { openSheet, setUpSheet } from "./sheet.js";

let thread = currentThread();
const panel = document.getElementById("chat");
panel.context = pageContext;
panel.clientTools = clientTools;
panel.setAttribute("thread", thread);
// Another conversation is begun in the panel; the project it is about is the page's.
panel.addEventListener("playhead-status", ({ detail }) => {
  if (detail.thread === thread) return;
  thread = detail.thread;
  keepThread(thread).catch((error) => fail(error.message));
});
setUpSheet(panel);
keepFresh(panel);
document.addEventListener("ask", ({ detail }) => {
  openSheet();
  panel.send(detail);
});
document.addEventListener("attach", ({ detail }) => {
  openSheet();
  panel.attach(detail);
});

setUpMedia();
loadMedia();
