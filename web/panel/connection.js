// The line to the server: requests, event streams, and trying again.

const FIRST = 500;
const LONGEST = 10_000;
// The server sends a comment every 15 seconds.
const SILENCE = 45_000;
const STALE = 20_000;
const MOST_TRIES = 12;

// The server's own no. Whatever else fails may be tried again.
export class Refusal extends Error {
  constructor(text, { status = 0, code = "" } = {}) {
    super(text);
    this.status = status;
    this.code = code;
  }
}

export async function answer(response) {
  const { status, ok } = response;
  if (status === 204) return null;
  const html = (response.headers.get("content-type") ?? "").startsWith("text/html");
  const body = html ? null : await response.json().catch(() => null);
  if (ok && body) return body;
  if (status === 401 || (ok && html)) throw new Refusal(body?.error ?? "", { status, code: "login" });
  const text = body?.error ?? `The server answered ${status}.`;
  // A server that is away or stopping comes back, and a gateway may speak for it.
  const passing = ok || status === 503 || (status >= 500 && !body?.code);
  const code = body?.code ?? (status === 403 ? "forbidden" : "");
  throw passing ? new Error(text) : new Refusal(text, { status, code });
}

// EventSource can neither be told where to begin nor tell a status.
export async function* frames(response, heard) {
  const type = response.headers.get("content-type") ?? "";
  if (!response.ok || !type.startsWith("text/event-stream")) {
    await answer(response);
    throw new Error("That was no event stream.");
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      heard();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split("\n");
        const field = (name) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
        if (field("data")) yield { id: field("id"), event: JSON.parse(field("data")) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

export class Connection {
  constructor(ask) {
    this.ask = ask;
    this.waiting = new Set();
    this.connected = new Set();
    this.heardAt = Date.now();
    this.closing = new AbortController();
    const { signal } = this.closing;
    addEventListener("online", () => this.again(), { signal });
    document.addEventListener("visibilitychange", () => document.hidden || this.awake(), { signal });
  }

  close() {
    this.closing.abort();
    this.again();
  }

  get closed() {
    return this.closing.signal.aborted;
  }

  again() {
    this.connected.forEach((controller) => controller.abort());
    this.waiting.forEach((go) => go());
  }

  awake() {
    if (Date.now() - this.heardAt > STALE) this.again();
    else this.waiting.forEach((go) => go());
  }

  async read(path, signal) {
    return answer(await this.ask(path, { signal }));
  }

  async post(path, body, signal) {
    const headers = { "Content-Type": "application/json" };
    return answer(await this.ask(path, { method: "POST", headers, body: JSON.stringify(body), signal }));
  }

  async delete(path) {
    return answer(await this.ask(path, { method: "DELETE" }));
  }

  // `work(signal, heard)` until it returns; `heard` is a sign of life. `lost` is told of a failure, and whether
  // it is tried again. Throws refusals only.
  async untilDone(work, lost) {
    for (let tries = 0; !this.closed; tries++) {
      const controller = new AbortController();
      let timer;
      const watch = () => {
        clearTimeout(timer);
        timer = setTimeout(() => controller.abort(), SILENCE);
      };
      const heard = () => {
        tries = 0;
        this.heardAt = Date.now();
        watch();
      };
      this.connected.add(controller);
      watch();
      try {
        return await work(controller.signal, heard);
      } catch (error) {
        if (error instanceof Refusal) throw error;
      } finally {
        clearTimeout(timer);
        this.connected.delete(controller);
      }
      if (this.closed) break;
      const given = tries >= MOST_TRIES;
      lost(!given);
      await this.pause(given ? null : Math.min(LONGEST, FIRST * 2 ** tries) * (1 - Math.random() / 2));
      if (given) tries = 0;
    }
    return undefined;
  }

  // Without a time, up to the next sign of somebody.
  pause(milliseconds) {
    return new Promise((resolve) => {
      const go = () => {
        clearTimeout(timer);
        this.waiting.delete(go);
        resolve();
      };
      const timer = milliseconds === null ? 0 : setTimeout(go, milliseconds);
      this.waiting.add(go);
    });
  }
}
