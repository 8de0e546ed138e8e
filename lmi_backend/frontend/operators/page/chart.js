// A figure over the last minutes: its value now, large, and a line below.

import { h, setText } from "./dom.js";

const LEAST_SECONDS = 60;
const SECONDS = 300;
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 100;

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// The next of 1, 2, 5, 10, 20 … that is not below.
function roundUp(value, least) {
  if (value <= least) return least;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((edge) => edge >= value);
}

export class Chart {
  #points = [];
  #lines;
  #top = h("span", { class: "edge" });
  #value = h("span", { class: "value" }, "–");
  #note = h("span", { class: "note" });
  #picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  #from = h("span", {}, "1 min ago");
  #span = LEAST_SECONDS;
  #cursor = svg("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });

  // names: of the lines; shown: a value in words; least: of the scale's upper end.
  constructor(title, names, shown, least = 1) {
    Object.assign(this, { title, names, shown, least });
    this.#lines = names.map((_, index) => [
      svg("path", { class: `area line-${index}` }), svg("path", { class: `line line-${index}` }),
    ]);
    for (const y of [0, HEIGHT / 2]) {
      this.#picture.append(svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    }
    this.#picture.append(...this.#lines.flat(), this.#cursor);
    const plot = h("div", { class: "plot" }, this.#picture, this.#top);
    plot.addEventListener("pointermove", (event) => this.#point(event));
    plot.addEventListener("pointerleave", () => this.#now());
    this.element = h("figure", { class: names.length > 1 ? "chart two" : "chart" },
      h("figcaption", {}, h("span", { class: "title" }, title), this.#value, this.#note), plot,
      h("div", { class: "ends" }, this.#from, h("span", {}, "now")));
  }

  // Adds the values of one moment, in seconds; null where there is none.
  add(time, values) {
    this.#points.push({ time, values });
    while (this.#points[0].time < time - SECONDS) this.#points.shift();
    // Whole minutes, as many as there is something to show of.
    this.#span = Math.max(LEAST_SECONDS, Math.ceil((time - this.#points[0].time) / 60) * 60);
    setText(this.#from, `${this.#span / 60} min ago`);
    this.#draw(time);
    if (this.#cursor.getAttribute("visibility") === "hidden") this.#now();
  }

  #draw(now) {
    const all = this.#points.flatMap(({ values }) => values.filter((value) => value != null));
    const most = Math.max(0, ...all);
    const top = roundUp(most, this.least);
    setText(this.#top, this.shown(top));
    this.#lines.forEach(([area, line], index) => {
      const runs = this.#runs(index, now, top);
      line.setAttribute("d", runs.map((run) => `M${run.join("L")}`).join(""));
      area.setAttribute("d", runs.map((run) => closed(run)).join(""));
    });
    const last = this.#points.at(-1).values;
    const values = this.names.map((name, index) => `${name} ${this.#text(last[index])}`).join(", ");
    this.#picture.setAttribute("aria-label", `${values} now; most since then: ${this.shown(most)}`);
  }

  // The points of a line, in parts where nothing is known between.
  #runs(index, now, top) {
    const runs = [];
    let before = -Infinity;
    for (const { time, values } of this.#points) {
      if (values[index] == null) continue;
      if (time - before > 5) runs.push([]);
      const x = WIDTH * (1 - (now - time) / this.#span);
      runs.at(-1).push(`${x.toFixed(1)} ${(HEIGHT * (1 - values[index] / top)).toFixed(1)}`);
      before = time;
    }
    return runs;
  }

  #text(value) {
    return value == null ? "–" : this.shown(value);
  }

  #now() {
    this.#cursor.setAttribute("visibility", "hidden");
    const last = this.#points.at(-1)?.values ?? [];
    this.#say(last, "");
  }

  #say(values, when) {
    setText(this.#value, this.#text(values[0]));
    const others = this.names.slice(1).map((name, index) => `${this.#text(values[index + 1])} ${name}`);
    setText(this.#note, [...others, when].filter(Boolean).join(" · "));
  }

  // Shows the values under the pointer.
  #point(event) {
    const box = this.#picture.getBoundingClientRect();
    const last = this.#points.at(-1)?.time ?? 0;
    const ago = this.#span * (1 - (event.clientX - box.left) / box.width);
    const found = this.#points.reduce((best, point) =>
      (Math.abs(last - ago - point.time) < Math.abs(last - ago - best.time) ? point : best), this.#points[0]);
    if (!found) return;
    const x = WIDTH * (1 - (last - found.time) / this.#span);
    this.#cursor.setAttribute("x1", x);
    this.#cursor.setAttribute("x2", x);
    this.#cursor.setAttribute("visibility", "visible");
    this.#say(found.values, `${Math.round(last - found.time)} s ago`);
  }
}

function closed(run) {
  const x = (point) => point.split(" ")[0];
  return `M${x(run[0])} ${HEIGHT}L${run.join("L")}L${x(run.at(-1))} ${HEIGHT}Z`;
}
