// Where the words of a line stand in its text, and when each is said.

const known = new WeakMap();

export const textOf = (segment) => segment.text.trim();

// [{ from, to, start, end }], characters and seconds; empty where the engine gave no times for words.
export function wordsOf(segment) {
  if (!known.has(segment)) known.set(segment, found(segment));
  return known.get(segment);
}

function found(segment) {
  const text = textOf(segment);
  const places = [];
  let from = 0;
  for (const word of segment.words ?? []) {
    const said = word.text.trim();
    const at = said ? text.indexOf(said, from) : -1;
    if (at < 0) continue;
    from = at + said.length;
    places.push({ from: at, to: from, start: word.start, end: word.end });
  }
  return places;
}

// When the character at a place is said: its word's time, or else the line's.
export function timeAt(segment, offset) {
  const word = wordsOf(segment).findLast(({ from }) => from <= offset);
  return word?.start ?? segment.start;
}

// A player that is sent to a word may come to stand a hair before it.
export const SLACK = 0.02;

export const wordAt = (segment, time) => wordsOf(segment).findLast(({ start }) => start <= time + SLACK) ?? null;

// Where the pointer is in a text node: [node, offset].
export function characterAt({ clientX, clientY }) {
  const place = document.caretPositionFromPoint?.(clientX, clientY);
  if (place) return [place.offsetNode, place.offset];
  const range = document.caretRangeFromPoint?.(clientX, clientY);
  return range ? [range.startContainer, range.startOffset] : [null, 0];
}

export function highlight(name, ranges) {
  if (!globalThis.CSS?.highlights) return;
  if (ranges.length) CSS.highlights.set(name, new Highlight(...ranges));
  else CSS.highlights.delete(name);
}

export function rangeIn(node, from, to) {
  const range = new Range();
  range.setStart(node, Math.min(from, node.length));
  range.setEnd(node, Math.min(to, node.length));
  return range;
}
