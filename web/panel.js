// `<playhead-panel>`: a conversation with an agent, for any page. See docs/panel.md.

import { PlayheadPanel } from "./panel/element.js";

// A page may load this module from two addresses; the first one has the name.
if (!customElements.get("playhead-panel")) customElements.define("playhead-panel", PlayheadPanel);

export { PlayheadPanel };
