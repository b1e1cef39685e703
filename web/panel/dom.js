// Making elements. Nothing here takes markup.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = "http:" + "//www.w3.org/2000/svg"; // a name, and not an address
const PATHS = {
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  plus: "M12 5v14M5 12h14",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6 6l12 12M18 6L6 18",
  retry: "M4 12a8 8 0 1 1 2.5 5.8M4 19v-5h5",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  branch: "M7 4v16M7 14c6 0 10-2 10-8M17 6V4",
  down: "M12 5v14M6 13l6 6 6-6",
  wait: "M12 7v5l3 2M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  hand: "M12 8v5M12 16.5h.01M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  run: "M12 3a9 9 0 1 0 9 9",
  bar: "M6 12h12",
  clip: "M8 12l6-6a3 3 0 0 1 4 4l-8 8a5 5 0 0 1-7-7l7-7",
  previous: "M15 5l-7 7 7 7",
  next: "M9 5l7 7-7 7",
};

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", `icon ${name}`);
  svg.append(path);
  return svg;
}

// A button with an icon and a name.
export function iconButton(name, label, onclick, properties = {}) {
  return element("button", { type: "button", className: "icon-button", title: label, ariaLabel: label, onclick, ...properties }, icon(name));
}

// A button that copies, and says so.
export function copyButton(t, textOf, label = t("copy")) {
  const button = element("button", { type: "button", className: "copy" }, icon("copy"), element("span", {}, label));
  button.addEventListener("click", async () => {
    const done = await navigator.clipboard?.writeText(textOf()).then(() => true, () => false);
    button.lastChild.textContent = done ? t("copied") : t("notCopied");
    setTimeout(() => (button.lastChild.textContent = label), 2_000);
  });
  return button;
}

export function clock(seconds) {
  const whole = Math.floor(seconds);
  const parts = [Math.floor(whole / 60) % 60, whole % 60].map((part) => String(part).padStart(2, "0"));
  const hours = Math.floor(whole / 3600);
  return hours ? `${hours}:${parts.join(":")}` : `${Number(parts[0])}:${parts[1]}`;
}

// A button that plays from a time; the panel hears its click.
export function timeButton(t, text, { ms, endMs = null, assetId = null }, ...more) {
  const from = clock(ms / 1000);
  const label = endMs === null ? t("playFrom", { from }) : t("playRange", { from, to: clock(endMs / 1000) });
  const button = element("button", { type: "button", className: "time" }, text, ...more);
  if (!more.length) button.ariaLabel = label;
  else button.title = label;
  Object.assign(button.dataset, { ms, ...(endMs !== null && { endMs }), ...(assetId && { assetId }) });
  return button;
}
