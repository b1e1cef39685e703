// The page: media on the one side, the conversation about them on the other.

import { fail } from "./bin.js";
import { clientTools, currentThread, keepThread, loadMedia, pageContext, setUpMedia } from "./media.js";
import { keepFresh } from "./fresh.js";
import { api } from "./state.js";
import { openSheet, setUpSheet } from "./sheet.js";

let thread = currentThread();
const panel = document.getElementById("chat");
panel.strings = { starters: ["Transcribe this", "What is said in it?", "Make captions for it"] };
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

// With what one begins, nothing but transcribing works: better said than found out.
const NOTICES = {
  mock: "No model is set: a stand-in answers, which can only transcribe.",
  missing: "No model is set up yet.",
};

async function sayWhoAnswers() {
  const { state, text } = await api("GET", "api/model").catch(() => ({}));
  const notice = document.getElementById("notice");
  notice.textContent = NOTICES[state] ?? "";
  notice.title = text ?? (state === "mock" ? "Set LLM_PROVIDER and LLM_MODEL for the server, and start it again." : "");
}

setUpMedia();
loadMedia();
sayWhoAnswers();
