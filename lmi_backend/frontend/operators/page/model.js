// One model of the live view.

import { Chart } from "./chart.js";
import { h, setText } from "./dom.js";
import { Log } from "./log.js";
import { planRows } from "./plan.js";
import { bytes, count, duration, percent, quantile, rate } from "./figures.js";
import { seconds } from "./run.js";

const WINDOW = 300;

// An engine without a KV cache has none in use, rather than 0 %.
const hasCache = (stats) => Boolean(stats.kv_blocks || stats.kv_cache_usage);

export class ModelCard {
  #before = null;
  #past = [];
  #state = h("span", { class: "state" });
  #about = h("p", { class: "about" });
  #problem = h("p", { class: "error", hidden: true });
  #facts = h("dl", { class: "facts" });
  #workers = h("tbody");
  #paths = h("p", { class: "note", hidden: true });
  #pathsOff = h("ul", { class: "paths" });
  #plan = h("dl", { class: "plan" });
  #reasons = h("ul");
  #notes = h("ul", { class: "notes" });
  #whole = h("pre", { tabindex: 0, "aria-label": "The whole plan" });
  #adapters = h("ul", { class: "adapters" });
  #log = new Log();
  #planText = "";
  #charts = {
    tokens: new Chart("Tokens/s", ["generated", "prompt"], rate, 10),
    requests: new Chart("Running", ["running", "waiting"], count, 4),
    cache: new Chart("KV cache", ["in use"], percent, 1),
  };

  constructor(name) {
    const charts = Object.values(this.#charts).map((chart) => chart.element);
    this.element = h("article", { class: "card", "aria-label": name },
      h("header", {}, h("h1", {}, name), this.#state, this.#about),
      this.#problem,
      h("div", { class: "charts" }, ...charts),
      this.#facts,
      section("Workers", h("div", { class: "sideways", tabindex: 0, role: "region", "aria-label": "Workers" }, workerTable(this.#workers)),
        this.#paths, this.#pathsOff),
      section("LoRA adapters", this.#adapters),
      section("Plan", this.#plan, h("h3", {}, "Why"), this.#reasons, this.#notes,
        h("details", { class: "whole" }, h("summary", {}, "The whole plan"), this.#whole)),
      this.#log.element);
  }

  get isLogOpen() { return this.#log.isOpen; }

  get lastLine() { return this.#log.last; }

  // Of a server that does not answer nothing is known.
  unknown() {
    this.#say("", "not known", "");
  }

  show(state) {
    if (state.loading) {
      const { text, seconds } = state.loading;
      this.#say("starting", "loading", seconds ? `${text}, ${Math.round(seconds)} s so far` : text);
      return;
    }
    if (state.error) {
      this.#say("failed", "no answer", state.error);
      return;
    }
    const { health } = state;
    if (health.is_given_up) this.#say("failed", "given up", health.problem);
    else if (!health.is_ready) this.#say("starting", "not ready", health.problem);
    else this.#say("ready", health.problem ? "partly ready" : "ready", health.problem);
    setText(this.#about, about(state));
    this.#showCharts(state);
    this.#showFacts(state);
    this.#workers.replaceChildren(...state.workers.map(workerRow));
    this.#showPaths(state.workers);
    this.#showAdapters(state.adapters);
    this.#showPlan(state.plan);
    this.#log.add(state.log ?? []);
  }

  #say(kind, text, problem) {
    this.#state.className = `state ${kind}`;
    setText(this.#state, text);
    this.#problem.hidden = !problem;
    setText(this.#problem, problem);
  }

  #showCharts(state) {
    const { now, stats, workers } = state;
    const before = this.#before;
    // A stub that was started anew counts from zero.
    const isNext = before && before.started_at === state.started_at && now > before.now;
    const perSecond = (name) => (isNext ? (stats[name] - before.stats[name]) / (now - before.now) : null);
    this.#charts.tokens.add(now, [perSecond("generation_tokens"), perSecond("prompt_tokens")]);
    const sum = (name) => workers.reduce((total, worker) => total + worker.stats[name], 0);
    this.#charts.requests.add(now, [sum("running"), sum("waiting") + stats.waiting]);
    const cached = workers.filter((worker) => hasCache(worker.stats));
    const fullest = Math.max(...cached.map((worker) => worker.stats.kv_cache_usage));
    this.#charts.cache.add(now, [cached.length ? fullest : null]);
    this.#before = state;
  }

  #showFacts(state) {
    const { now, stats, workers, front_end: held, buffered } = state;
    if (this.#past[0]?.started_at !== state.started_at) this.#past = [];
    this.#past.push({ now, started_at: state.started_at, stats });
    while (this.#past[0].now < now - WINDOW) this.#past.shift();
    const times = (name) => {
      const earlier = this.#past[0].stats[name];
      const half = quantile(stats[name], earlier, 0.5);
      return half == null ? "–" : `${seconds(half)} · ${seconds(quantile(stats[name], earlier, 0.95))}`;
    };
    const good = ["stop", "length"].reduce((total, end) => total + (stats.ended[end] ?? 0), 0);
    const ended = Object.values(stats.ended).reduce((total, number) => total + number, 0);
    const others = Object.entries(stats.ended).filter(([end]) => !["stop", "length"].includes(end));
    const deaths = workers.reduce((total, worker) => total + worker.deaths, 0);
    const rows = [
      ["First token", times("first_seconds"), "median · 95th percentile"],
      ["Between tokens", times("token_seconds"), "median · 95th percentile"],
      ["Whole answer", times("request_seconds"), "median · 95th percentile"],
      ["Finished", count(good), `${count(stats.generation_tokens)} tokens`],
      ["Ended otherwise", count(ended - good), others.map(([end, number]) => `${number} ${end.replaceAll("_", " ")}`).join(", ") || "none"],
      ["Worker deaths", count(deaths), deaths ? `${count(stats.moved)} requests resumed elsewhere, ${count(stats.given_up)} did not in time` : "no restarts"],
      ["Server restarts", count(held.moved + held.held), `requests that waited: ${count(held.moved)} resumed, ${count(held.held)} started late, ${count(held.given_up)} failed`],
    ];
    // These are of interest once the server was away, or a client asked for a stream that it can resume.
    if (!(held.moved + held.held + held.given_up)) rows.pop();
    if (buffered.answers + buffered.reconnections + buffered.lapsed) {
      rows.push(["Streams buffered", count(buffered.answers), `${bytes(buffered.bytes)}; ${count(buffered.reconnections)} reconnections, ${count(buffered.lapsed)} cancelled without one`]);
    }
    fill(this.#facts, rows);
  }

  // Of the workers, which have the same but for one that has lost some while it served.
  #showPaths(workers) {
    const all = new Map(workers.flatMap(({ stats }) => stats.fast_paths).map((path) => [path.name, ""]));
    for (const { stats } of workers) {
      for (const { name, reason, cost } of stats.fast_paths) if (reason) all.set(name, `${reason}. Cost: ${cost}`);
    }
    const off = [...all].filter(([, why]) => why);
    this.#paths.hidden = !all.size;
    setText(this.#paths, `Fast paths: ${all.size - off.length} of ${all.size} hold`);
    const rows = off.map(([name, why]) => h("li", {}, h("b", {}, name), " ", h("span", { class: "note" }, why)));
    this.#pathsOff.replaceChildren(...rows);
  }

  #showAdapters(adapters) {
    const names = Object.keys(adapters);
    this.#adapters.parentElement.hidden = !names.length;
    const rows = names.map((name) => h("li", {}, h("b", {}, name), " ", h("span", { class: "note" }, adapters[name])));
    this.#adapters.replaceChildren(...rows);
  }

  // It changes only when the model is loaded anew.
  #showPlan(plan) {
    const text = JSON.stringify(plan, null, 2);
    if (text === this.#planText) return;
    this.#planText = text;
    setText(this.#whole, text);
    this.#plan.replaceChildren(...planRows(plan).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    this.#reasons.replaceChildren(...plan.reasons.map((reason) => h("li", {}, reason)));
    this.#notes.replaceChildren(...plan.notes.map((note) => h("li", {}, note)));
  }
}

function section(title, ...children) {
  return h("section", {}, h("h2", {}, title), ...children);
}

// Changes texts in place, so that nothing moves.
function fill(list, rows) {
  while (list.children.length > rows.length) list.lastElementChild.remove();
  while (list.children.length < rows.length) {
    list.append(h("div", {}, h("dt"), h("dd", { class: "value" }), h("dd", { class: "note" })));
  }
  rows.forEach((row, place) => row.forEach((text, index) => setText(list.children[place].children[index], text)));
}

function about({ engine, version, root, served_names, started_at, now, max_model_len }) {
  const also = served_names.length ? `also called ${served_names.join(", ")}` : "";
  const parts = [`${engine} ${version}`, root, also, `up to ${count(max_model_len)} tokens`];
  return [...parts, `up for ${duration(now - started_at)}`].filter(Boolean).join(" · ");
}

const COLUMNS = ["Worker", "State", "Running", "Waiting", "KV cache", "Answers", "Deaths", "From prefix cache", "Drafts kept"];

function workerTable(body) {
  const names = COLUMNS.map((name) => h("th", { scope: "col" }, name));
  return h("table", { class: "workers" }, h("thead", {}, h("tr", {}, ...names)), body);
}

function workerRow({ is_ready, is_wanted, has_spare, is_adopted, problem, assigned, deaths, stats }, index) {
  const share = (part, whole) => (whole ? percent(part / whole) : "–");
  const cells = [
    count(stats.running), count(stats.waiting), hasCache(stats) ? percent(stats.kv_cache_usage) : "–", count(assigned), count(deaths),
    share(stats.prompt_tokens_cached, stats.prompt_tokens_looked_up), share(stats.tokens_accepted, stats.tokens_drafted),
  ];
  const notes = [is_adopted ? ", adopted after a crash" : "", has_spare ? " and a spare" : ""].join("");
  return h("tr", {},
    h("th", { scope: "row" }, String(index)),
    h("td", {}, h("span", { class: `state ${is_ready ? "ready" : is_wanted ? "starting" : ""}` }, is_ready ? "ready" : problem), notes ? h("span", { class: "note" }, notes) : ""),
    ...cells.map((cell) => h("td", {}, cell)));
}
