// Making elements. Nothing here takes markup.

import { ICONS } from "./assets.js";

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = "http:" + "//www.w3.org/2000/svg";

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.append(path);
  return svg;
}

export function button(className, onclick, ...content) {
  return element("button", { type: "button", className, onclick }, ...content);
}

export function iconButton(name, label, onclick, properties = {}) {
  return Object.assign(button("icon-button", onclick, icon(name)), { title: label, ariaLabel: label }, properties);
}

export function copyButton(t, textOf, label = t("copy")) {
  const shown = element("span", {}, label);
  const copy = async () => {
    const done = await navigator.clipboard?.writeText(textOf()).then(() => true, () => false);
    shown.textContent = t(done ? "copied" : "notCopied");
    setTimeout(() => (shown.textContent = label), 2_000);
  };
  return button("copy", copy, icon("copy"), shown);
}

export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds || 0));
  const parts = [Math.floor(whole / 60) % 60, whole % 60].map((part) => String(part).padStart(2, "0"));
  const hours = Math.floor(whole / 3600);
  return hours ? `${hours}:${parts.join(":")}` : `${Number(parts[0])}:${parts[1]}`;
}

export function timeButton(t, text, { ms, endMs = null, assetId = null }, ...more) {
  const from = clock(ms / 1000);
  const label = endMs === null ? t("playFrom", { from }) : t("playRange", { from, to: clock(endMs / 1000) });
  const made = button("time", null, text, ...more);
  made[more.length ? "title" : "ariaLabel"] = label;
  Object.assign(made.dataset, { ms, ...(endMs !== null && { endMs }), ...(assetId && { assetId }) });
  return made;
}
