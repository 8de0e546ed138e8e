// The last lines of a model's log.

import { h } from "./dom.js";

const MOST = 200;

export class Log {
  #lines = h("ol", { class: "lines", tabindex: 0, "aria-label": "Log" });

  constructor() {
    this.last = 0;
    this.element = h("details", { class: "log", open: true }, h("summary", {}, "Log"), this.#lines);
  }

  get isOpen() { return this.element.open; }

  // Adds lines; follows them where the end was seen.
  add(lines) {
    const list = this.#lines;
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 30;
    for (const [number, time, level, text] of lines) {
      this.last = number;
      const clock = new Date(time * 1000).toTimeString().slice(0, 8);
      list.append(h("li", { class: level.toLowerCase() },
        h("time", {}, clock), " ", h("span", { class: "level" }, level), " ", text));
    }
    while (list.children.length > MOST) list.firstChild.remove();
    if (isAtEnd && lines.length) list.scrollTop = list.scrollHeight;
  }
}
