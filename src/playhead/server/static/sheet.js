// On a small screen the conversation is a sheet over the page: the video above it stays in sight. Where there is
// room it stands beside the rest, and nothing here is seen.

const get = (id) => document.getElementById(id);
const OPEN = "playhead.sheet";
const FAR = 60; // pixels that the handle is drawn down to close it
const SLIP = 8; // and so many are still a tap
const SAYS = { idle: "Ask the assistant", running: "Working…", waiting: "Waits for you" };

export function openSheet(is = true) {
  document.body.classList.toggle("asking", is);
  get("sheet-open").ariaExpanded = String(is);
  if (is) sessionStorage.setItem(OPEN, "yes");
  else sessionStorage.removeItem(OPEN);
}

export function setUpSheet(panel) {
  const [opener, handle] = [get("sheet-open"), get("sheet-close")];
  let from = null;
  let dragged = false;
  const close = () => {
    openSheet(false);
    opener.focus();
  };
  openSheet(sessionStorage.getItem(OPEN) === "yes");
  opener.addEventListener("click", () => {
    openSheet();
    panel.focus();
  });
  handle.addEventListener("click", () => dragged || close());
  handle.addEventListener("pointerdown", (event) => {
    from = event.clientY;
    dragged = false;
    handle.setPointerCapture(event.pointerId);
  });
  handle.addEventListener("pointermove", ({ clientY }) => {
    if (from === null) return;
    dragged ||= Math.abs(clientY - from) > SLIP;
    pull(Math.max(0, clientY - from));
  });
  for (const name of ["pointerup", "pointercancel"]) {
    handle.addEventListener(name, ({ clientY }) => {
      if (from !== null && name === "pointerup" && clientY - from > FAR) close();
      from = null;
      pull(0);
    });
  }
  panel.addEventListener("playhead-status", ({ detail: { state } }) => {
    opener.textContent = SAYS[state] ?? SAYS.idle;
    opener.dataset.state = state;
  });
  // Where the keyboard lies over the page, instead of making it smaller, the sheet stands on it.
  const view = window.visualViewport;
  const fit = () => style("--keyboard", Math.max(0, innerHeight - view.height - view.offsetTop));
  for (const name of ["resize", "scroll"]) view?.addEventListener(name, fit);
}

const pull = (pixels) => style("--pulled", pixels);
const style = (name, pixels) => document.documentElement.style.setProperty(name, `${Math.round(pixels)}px`);
