// The page: media on the one side, the conversation about them on the other.

import { context, loadMedia, seek, setUpMedia, transcribed } from "./media.js";

const panel = document.getElementById("chat");
panel.context = context;
panel.addEventListener("seek", ({ detail }) => seek(detail.asset_id, detail.ms / 1000));
panel.addEventListener("playhead-result", ({ detail }) => transcribed(detail.result));

setUpMedia();
loadMedia();
