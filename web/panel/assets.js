// What is neither script nor markup: texts, icons and the style sheet, which all panels of a page share.

const read = async (name) => (await fetch(new URL(name, import.meta.url))).text();
const [styles, STRINGS, ICONS] = await Promise.all([
  read("panel.css"),
  read("strings.json").then(JSON.parse),
  read("icons.json").then(JSON.parse),
]);

export { ICONS };

// A sheet that is made by a script needs no laxer policy of the page.
export const sheet = new CSSStyleSheet();
sheet.replaceSync(styles);

export function texts(given) {
  const all = { ...STRINGS, ...given };
  for (const name of ["notes", "errors"]) all[name] = { ...STRINGS[name], ...given?.[name] };
  return (name, values = {}) => {
    const text = name.split(".").reduce((found, part) => found?.[part], all);
    return typeof text === "string" ? text.replace(/\{(\w+)\}/g, (whole, key) => values[key] ?? whole) : text;
  };
}
