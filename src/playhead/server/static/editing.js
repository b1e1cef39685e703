// A line of the transcript, written anew: Enter keeps it, Esc leaves it as it was.

import { fail } from "./bin.js";
import { element } from "../panel/dom.js";
import { api, mediaUrl, state, tell } from "./state.js";
import { redraw, segmentOf } from "./transcript.js";
import { textOf } from "./words.js";

export function editLine(line) {
  if (line.classList.contains("editing")) return;
  const [index, segment] = [Number(line.dataset.index), segmentOf(line)];
  const text = line.lastChild;
  const heard = (segment.said ?? segment.text).trim();
  const field = element("textarea", { value: textOf(segment), rows: 1, ariaLabel: "The line, written anew" });
  const restore = element("button", { type: "button", className: "quiet small" }, "As it was heard");
  restore.hidden = segment.said === undefined;
  const box = element("span", { className: "edit" }, field, restore);
  line.classList.add("editing");
  text.hidden = true;
  text.before(box);
  field.focus();
  field.select();

  let over = false;
  const end = (focus) => {
    over = true;
    box.remove();
    text.hidden = false;
    line.classList.remove("editing");
    if (focus) text.focus();
  };
  const keep = async (written, focus) => {
    if (over) return;
    over = true;
    const asset = state.asset.id;
    if (written.trim() === textOf(segment)) return end(focus);
    field.disabled = true;
    try {
      const path = mediaUrl(asset, `transcript/lines/${index}`);
      const made = await api("PUT", path, { said: heard, text: written });
      if (state.asset?.id !== asset) return;
      redraw(index, made);
      tell("written");
      if (focus) document.querySelector(`.line[data-index="${index}"] .text`).focus();
    } catch (error) {
      field.disabled = false;
      over = false;
      field.focus();
      fail(error.message);
    }
  };
  restore.onclick = () => keep(heard, true);
  field.onkeydown = (event) => {
    if (event.isComposing) return;
    event.stopPropagation();
    if (event.key === "Enter") {
      event.preventDefault();
      keep(field.value, true);
    } else if (event.key === "Escape") end(true);
  };
  box.onfocusout = ({ relatedTarget }) => box.contains(relatedTarget) || keep(field.value, false);
}
