// Server-sent events of a fetch response. EventSource can neither be told where to begin nor tell a status.

export async function* frames(response, heard) {
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

// The server's own no. What is none, such as a connection that broke, may be tried again.
export class Refusal extends Error {}

// The JSON of a response, or an error with the server's own text.
export async function answer(response) {
  const body = await response.json().catch(() => null);
  if (response.ok && body) return body;
  const text = body?.error ?? `The server answered ${response.status}.`;
  // An answer may break off. A server that is away or stopping comes back, and a gateway may speak for it.
  const passing = response.ok || response.status === 503 || (response.status >= 500 && !body?.code);
  throw passing ? new Error(text) : new Refusal(text);
}

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
