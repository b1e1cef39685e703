// What outlives a reload. A page in a sandbox may have no place for it: then nothing does.

function place(name) {
  try {
    return window[name];
  } catch {
    return null;
  }
}

export function recall(storage, key, otherwise = null) {
  try {
    return JSON.parse(place(storage)?.getItem(key) ?? "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function keep(storage, key, value) {
  try {
    if (value?.length) place(storage)?.setItem(key, JSON.stringify(value));
    else place(storage)?.removeItem(key);
  } catch {
    // It is full.
  }
}

// `crypto.randomUUID` is not there on a page that was not fetched safely.
export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
