// A conversation as a text to keep.

import { titleOf } from "./cards.js";
import { textOf } from "./reducer.js";

export function toJson(id, { items, versions }) {
  return JSON.stringify({ thread: id, exportedAt: new Date().toISOString(), items: items.map(lasting), versions }, null, 2);
}

const lasting = ({ place, length, whole, ask, progress, argsText, replaced, ...item }) => item;

export function toMarkdown({ items }, t) {
  const parts = [`# ${t("title")}`];
  for (const item of items) {
    if (item.kind === "user") parts.push(`## ${t("you")}`, textOf(item.content));
    else if (item.kind === "text") parts.push(`## ${t("assistant")}`, item.text);
    else if (item.kind === "tool") parts.push(...toolParts(item, t));
    else if (item.kind === "note") parts.push(`> ${item.text || t(`notes.${item.reason}`)}`);
  }
  return `${parts.join("\n\n")}\n`;
}

function toolParts({ name, state, args, result, error }, t) {
  const outcome = error ?? (typeof result === "string" ? result : JSON.stringify(result, null, 2));
  return [
    `### ${titleOf(name)} (\`${name}\`): ${t(state)}`,
    fenced(JSON.stringify(args ?? {}, null, 2), "json"),
    ...(result === null && error === null ? [] : [fenced(outcome)]),
  ];
}

function fenced(text, language = "") {
  const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map(({ length }) => length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${language}\n${text}\n${fence}`;
}

export function save(text, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
