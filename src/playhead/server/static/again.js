// Trying again for as long as the page is open: a server restarts, a laptop sleeps for days.

import { Refusal } from "./sse.js";

const FIRST = 500;
const LONGEST = 10_000;
// The server sends a comment every 15 seconds; a connection that is silent for longer is dead.
const SILENCE = 45_000;

// What cuts a wait short, and what ends a connection that was made before the network came back.
const waiting = new Set();
const connected = new Set();

addEventListener("online", () => {
  connected.forEach((controller) => controller.abort());
  waiting.forEach((go) => go());
});
document.addEventListener("visibilitychange", () => document.hidden || waiting.forEach((go) => go()));

// Call `work` until it returns. `heard` is to be called when there is a sign of life, `lost` is when there
// is none. Throws the server's refusals only.
export async function untilDone(work, lost) {
  for (let tries = 0; ; tries++) {
    const controller = new AbortController();
    let timer;
    const watch = () => {
      clearTimeout(timer);
      timer = setTimeout(() => controller.abort(), SILENCE);
    };
    const heard = () => {
      tries = 0;
      watch();
    };
    connected.add(controller);
    watch();
    try {
      return await work(controller.signal, heard);
    } catch (error) {
      if (error instanceof Refusal) throw error;
    } finally {
      clearTimeout(timer);
      connected.delete(controller);
    }
    lost();
    await pause(Math.min(LONGEST, FIRST * 2 ** tries) * (1 - Math.random() / 2));
  }
}

function pause(milliseconds) {
  return new Promise((resolve) => {
    const go = () => {
      clearTimeout(timer);
      waiting.delete(go);
      resolve();
    };
    const timer = setTimeout(go, milliseconds);
    waiting.add(go);
  });
}
