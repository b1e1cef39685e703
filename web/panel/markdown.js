// Markdown, shown while it is written: parse, sanitise, insert, in that order. What is finished is parsed
// once; of the last block only what changed is touched, so that a selection in it stays.

import { Marked } from "./vendor/marked-18.2.1/marked.esm.js";
import DOMPurify from "./vendor/dompurify-3.5.0/purify.es.mjs";
import { copyButton, element, timeButton } from "./dom.js";

const CLEAN = {
  RETURN_DOM_FRAGMENT: true,
  ALLOWED_TAGS: [
    ..."p br hr strong em del code pre blockquote ul ol li h1 h2 h3 h4 h5 h6".split(" "),
    ..."table thead tbody tr th td a input".split(" "),
  ],
  ALLOWED_ATTR: ["href", "title", "class", "start", "align", "checked", "disabled", "type"],
  ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
  ADD_URI_SAFE_ATTR: ["type", "align", "start"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

const escape = (text) => new XMLSerializer().serializeToString(new Text(text)).replaceAll('"', "&quot;");

// Markup of a model is text; but for the line breaks that tables have no other way for.
const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => (/^<br\s*\/?>$/i.test(text.trim()) ? "<br>" : escape(text)),
    // A picture tells its host that it was looked at, and what the model put into its address.
    image: ({ text, href }) => `<a href="${escape(href)}" title="${escape(href)}" class="picture">${escape(text || href)}</a>`,
    checkbox: ({ checked }) => `<input type="checkbox" disabled${checked ? " checked" : ""}>`,
  },
});

// 1:02, [1:02:03], 0:10–0:20; not 10:30 pm, and not a part of a longer number.
const AT = String.raw`(?:(\d{1,2}):)?(\d{1,2}):([0-5]\d(?:\.\d{1,3})?)`;
const TIME = new RegExp(String.raw`(?<![\d:.,/-])\[?${AT}(?:\s*(?:-|–|—|to)\s*${AT})?(?:\]|(?![\d:/]|\s?[ap]\.?m\b))`, "gi");
// What begins a block and is not one yet: a lone marker, or a line under a text.
const HALF_LINE = /(?:^|\n)[ \t]*(?:#{1,6}|[-*+]|\d+[.)]?|`{1,3}|~{1,3}|>|-{2,}|={1,}|\|[^\n]*)[ \t]*$/;
const ENDLESS = /[^\n]{10000}/;
const REFERENCES = /^ {0,3}\[[^\]]+\]:/m;

export class Markdown {
  constructor(node, t) {
    this.node = node;
    this.t = t;
    this.text = "";
    this.parsed = 0;
    this.last = [];
  }

  // What is nested too deeply, or has lines that take too long, is shown as it is written.
  show(given, whole) {
    const text = given.replace(/\r\n?/g, "\n");
    try {
      if (ENDLESS.test(text)) throw new RangeError();
      this.render(text, whole);
    } catch {
      this.restart();
      this.put([element("pre", {}, text)], false);
    }
  }

  render(text, whole) {
    if (!text.startsWith(this.text.slice(0, this.parsed)) || (whole && REFERENCES.test(text))) this.restart();
    this.text = text;
    const tokens = marked.lexer(text.slice(this.parsed));
    let done = tokens.length;
    if (!whole) {
      while (done > 0 && tokens[done - 1].type === "space") done--;
      done = Math.max(0, done - 1);
    }
    for (const token of tokens.slice(0, done)) {
      this.put(token.type === "space" ? [] : this.nodes([token], token.raw, true), true);
      this.parsed += token.raw.length;
    }
    const rest = text.slice(this.parsed);
    if (!whole) this.put(this.nodes(marked.lexer(begun(rest)), rest, false), false);
    else this.parsed = text.length;
  }

  restart() {
    this.node.replaceChildren();
    this.parsed = 0;
    this.last = [];
  }

  nodes(tokens, raw, whole) {
    const clean = DOMPurify.sanitize(marked.parser(tokens), CLEAN);
    decorate(clean, this.t, whole);
    return [...clean.childNodes].filter((node) => node.nodeType === Node.ELEMENT_NODE || node.data.trim());
  }

  put(nodes, done) {
    const kept = nodes.map((node, at) => {
      const old = this.last[at];
      if (!old) {
        this.node.append(node);
        return node;
      }
      return become(old, node);
    });
    this.last.slice(nodes.length).forEach((node) => node.remove());
    this.last = done ? [] : kept;
  }
}

// Make `old` what `node` is, with little change; return what stands there.
function become(old, node) {
  if (old.nodeName !== node.nodeName || old.className !== node.className || old.nodeName === "BUTTON") {
    if (old.isEqualNode(node)) return old;
    old.replaceWith(node);
    return node;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (node.data.startsWith(old.data)) old.appendData(node.data.slice(old.data.length));
    else old.data = node.data;
    return old;
  }
  for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const [before, after] = [[...old.childNodes], [...node.childNodes]];
  after.forEach((child, at) => (before[at] ? become(before[at], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
  return old;
}

function begun(text) {
  const fence = (text.match(/^ {0,3}(?:`{3,}|~{3,})/gm) ?? []).length % 2 === 1;
  if (fence) return text.replace(/\n[ \t]*`{1,2}$/, "");
  if (/^ {0,3}\|[^\n]*\n? *\|?[-:| ]*$/.test(text)) return "";
  let shown = isTable(text) ? text : text.replace(HALF_LINE, "");
  shown = shown.replace(/!?\[([^\]\n]*)(?:\](?:\([^)\n]*)?)?$/, "$1").replace(/(?:<[^>\n]*|(?<!~)~)$/, "");
  const line = shown.slice(shown.lastIndexOf("\n\n") + 1);
  for (const mark of ["`", "**", "~~"]) {
    if (line.split(mark).length % 2) continue;
    shown = shown.endsWith(mark) ? shown.slice(0, -mark.length) : shown.trimEnd() + mark;
    if (mark === "`") return shown;
  }
  const single = shown.slice(shown.lastIndexOf("\n\n") + 1).replaceAll("**", "").match(/(?<![\w*])\*(?=\S)|(?<=\S)\*(?![\w*])|\*$/g);
  if ((single?.length ?? 0) % 2 === 0) return shown;
  return shown.endsWith("*") ? shown.slice(0, -1) : `${shown.trimEnd()}*`;
}

const isTable = (text) => /^ {0,3}\|?[^\n]*\|[^\n]*\n *\|?[-: ]+\|[-:| ]*\n/.test(text);

function decorate(root, t, whole) {
  for (const link of root.querySelectorAll("a")) {
    if (!link.hasAttribute("href")) {
      link.replaceWith(...link.childNodes);
      continue;
    }
    link.rel = "noopener noreferrer nofollow";
    link.target = "_blank";
    if (link.className) link.textContent = t("image", { text: link.textContent });
  }
  for (const box of root.querySelectorAll("input")) {
    box.ariaLabel = box.parentElement?.textContent.trim() ?? "";
    if (box.type !== "checkbox") box.remove();
  }
  for (const cell of root.querySelectorAll("[class]:not(code)")) cell.removeAttribute("class");
  for (const pre of root.querySelectorAll("pre")) pre.replaceWith(codeBlock(pre, t));
  for (const table of root.querySelectorAll("table")) {
    const frame = element("div", { className: "table", tabIndex: 0, role: "group", ariaLabel: "Table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  if (whole || root.textContent.length < 4_000) addTimes(root, t);
}

function codeBlock(pre, t) {
  const code = pre.firstElementChild ?? pre;
  const language = /language-([\w+#.-]+)/.exec(code.className)?.[1] ?? "";
  code.removeAttribute("class");
  pre.tabIndex = 0;
  pre.ariaLabel = language || t("code");
  pre.setAttribute("role", "group");
  const copy = copyButton(t, () => frame.querySelector("code").textContent);
  const head = element("div", { className: "code-head" }, element("span", {}, language), copy);
  const frame = element("div", { className: "code" }, head);
  frame.append(pre.cloneNode(true));
  return frame;
}

export function addTimes(root, t) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const { currentNode: node } = walker;
    if (!node.parentElement?.closest("pre, code, a, button") && /\d:[0-5]\d/.test(node.data)) found.push(node);
  }
  for (const node of found) node.replaceWith(...withTimes(node.data, t));
}

export function withTimes(text, t) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(TIME)) {
    const [whole, h, m, s, endH, endM, endS] = match;
    const ms = milliseconds(h, m, s);
    const endMs = endS === undefined ? null : milliseconds(endH, endM, endS);
    parts.push(text.slice(at, match.index), timeButton(t, whole.replace(/^\[|\]$/g, ""), { ms, endMs }));
    at = match.index + whole.length;
  }
  return [...parts, text.slice(at)].filter((part) => part !== "");
}

const milliseconds = (hours = 0, minutes, seconds) =>
  Math.round((Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds)) * 1000);
