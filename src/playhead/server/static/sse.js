// Server-sent events of a fetch response. EventSource can neither POST nor tell a status.

export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split("\n").find((line) => line.startsWith("data: "));
        if (data) yield JSON.parse(data.slice(6));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// The JSON of a response, or an error with the server's own text.
export async function answer(response) {
  const body = await response.json().catch(() => null);
  if (response.ok) return body;
  throw new Error(body?.error ?? `The server answered ${response.status}.`);
}

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
