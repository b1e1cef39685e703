// What is neither script nor markup: the texts and the style sheet, which all panels of a page share.

const read = (name) => fetch(new URL(name, import.meta.url));
const [styles, STRINGS] = await Promise.all([
  read("panel.css").then((response) => response.text()),
  read("strings.json").then((response) => response.json()),
]);

// A sheet that is made by a script needs no laxer policy of the page.
export const sheet = new CSSStyleSheet();
sheet.replaceSync(styles);

// A function of a text's name and what stands in its braces. A host may have `given` others.
export function texts(given) {
  const all = { ...STRINGS, ...given };
  for (const name of ["notes", "errors"]) all[name] = { ...STRINGS[name], ...given?.[name] };
  return (name, values = {}) => {
    const text = name.split(".").reduce((found, part) => found?.[part], all);
    return typeof text === "string" ? text.replace(/\{(\w+)\}/g, (whole, key) => values[key] ?? whole) : text;
  };
}
