// What outlives a reload. A page in a sandbox has no place for it, and a place may be full: then nothing does.

export function recall(storage, key, otherwise = null) {
  try {
    return JSON.parse(window[storage].getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function keep(storage, key, value) {
  try {
    if (value?.length) window[storage].setItem(key, JSON.stringify(value));
    else window[storage].removeItem(key);
  } catch {}
}

// `crypto.randomUUID` needs a safe page.
export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
