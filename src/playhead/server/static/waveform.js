// The waveform: drawn once for each size and theme, and again for how far it is played.

const BAR = 2;
const GAP = 1;
const LEAST = 1;

export class Waveform {
  constructor(canvas) {
    this.canvas = canvas;
    this.peaks = [];
    this.marks = []; // times that were found, in parts of the whole
    this.changes = []; // times that were changed, likewise
    this.range = null; // what is selected, likewise
    this.played = 0;
    new ResizeObserver(() => this.fit()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.fit());
  }

  show({ peaks = this.peaks, marks = this.marks, changes = this.changes, range = this.range, played = this.played }) {
    Object.assign(this, { peaks, marks, changes, range, played });
    this.draw();
  }

  fit() {
    const { clientWidth, clientHeight } = this.canvas;
    this.canvas.width = Math.round(clientWidth * devicePixelRatio);
    this.canvas.height = Math.round(clientHeight * devicePixelRatio);
    const style = getComputedStyle(this.canvas);
    // A canvas knows no light-dark(): these are of properties that the browser has worked out.
    const { color: played, borderTopColor: rest, outlineColor: mark, caretColor: range, columnRuleColor: change } = style;
    this.colors = { played, rest, mark, range, change };
    this.draw();
  }

  draw() {
    const context = this.canvas.getContext("2d");
    const { width, height } = this.canvas;
    if (!this.colors || !width) return;
    context.clearRect(0, 0, width, height);
    if (this.range) {
      context.fillStyle = this.colors.range;
      context.fillRect(this.range.start * width, 0, Math.max(2, (this.range.end - this.range.start) * width), height);
    }
    const step = (BAR + GAP) * devicePixelRatio;
    const bars = Math.floor(width / step);
    for (let bar = 0; bar < bars; bar++) {
      context.fillStyle = bar / bars < this.played ? this.colors.played : this.colors.rest;
      const tall = Math.max(LEAST * devicePixelRatio, this.loudest(bar / bars, (bar + 1) / bars) * height * 0.86);
      context.fillRect(bar * step, (height - tall) / 2, BAR * devicePixelRatio, tall);
    }
    context.fillStyle = this.colors.mark;
    for (const at of this.marks) context.fillRect(at * width - devicePixelRatio, 0, 2 * devicePixelRatio, height * 0.22);
    context.fillStyle = this.colors.change;
    for (const at of this.changes) context.fillRect(at * width, height * 0.86, 6 * devicePixelRatio, height * 0.14);
  }

  loudest(from, to) {
    const count = this.peaks.length;
    let most = 0;
    for (let i = Math.floor(from * count); i < Math.max(to * count, from * count + 1) && i < count; i++) {
      if (this.peaks[i] > most) most = this.peaks[i];
    }
    return most / 255;
  }
}
