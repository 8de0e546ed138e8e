// One answer as it comes: its text, its tokens and how fast they are.

import { stream } from "./api.js";

export class Run {
  #began = performance.now();
  #first = 0;
  #last = 0;
  #atFirst = 0;
  #stop = new AbortController();
  text = "";
  reasoning = "";
  tokens = 0;
  finish = "";
  isOver = false;

  stop() {
    this.#stop.abort();
  }

  // Asks, and calls back with each part; returns when the answer is over, or was stopped.
  async ask(path, body, changed) {
    try {
      for await (const chunk of stream(path, body, this.#stop.signal)) {
        this.#take(chunk);
        changed();
      }
    } catch (error) {
      this.finish = error.name === "AbortError" ? "stopped" : "failed";
      if (this.finish === "failed") throw error;
    } finally {
      this.isOver = true;
    }
  }

  #take(chunk) {
    const choice = chunk.choices?.[0];
    const delta = choice?.delta ?? choice ?? {};
    const text = delta.content ?? delta.text ?? "";
    const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
    const counted = chunk.usage?.completion_tokens;
    if (text || reasoning) {
      this.#last = performance.now();
      // A server that does not count as it goes sends about a token a part.
      this.tokens = counted ?? this.tokens + 1;
      if (!this.#first) [this.#first, this.#atFirst] = [this.#last, this.tokens];
    } else if (counted != null) {
      this.tokens = counted;
    }
    this.text += text;
    this.reasoning += reasoning;
    this.finish = choice?.finish_reason ?? this.finish;
  }

  // Plain figures, which are kept with the answer.
  figures() {
    const seconds = (this.#last - this.#first) / 1000;
    return {
      tokens: this.tokens,
      first: this.#first ? (this.#first - this.#began) / 1000 : 0,
      // Of a burst nothing can be told.
      rate: seconds >= SHORTEST ? (this.tokens - this.#atFirst) / seconds : 0,
      finish: this.finish,
      silent: this.isOver ? 0 : (performance.now() - (this.#last || this.#began)) / 1000,
    };
  }
}

const ENDS = { length: "cut at max tokens", stopped: "stopped", failed: "broken off" };
const NOTHING = { stopped: "stopped", failed: "no answer" };
const SHORTEST = 0.05;
const STALLED = 3;

export function inWords({ tokens, first, rate, finish, silent }) {
  const wait = silent >= STALLED ? `, ${Math.floor(silent)} s so far` : "";
  if (!tokens) return NOTHING[finish] ?? `waiting for the first token${wait}`;
  const parts = [`${tokens} ${tokens === 1 ? "token" : "tokens"}`];
  if (wait) parts.push(`no token for ${Math.floor(silent)} s`);
  else if (rate > 0) parts.push(`${rate.toFixed(1)} tokens/s`);
  parts.push(`first after ${seconds(first)}`);
  if (ENDS[finish]) parts.push(ENDS[finish]);
  return parts.join(" · ");
}

export function seconds(value) {
  if (value < 0.001) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1000).toFixed(value < 0.01 ? 1 : 0)} ms`;
  return `${value.toFixed(value < 10 ? 2 : 0)} s`;
}

// Calls back at most once a frame, and leaves as much time for other things as the last call took.
export function paced(show) {
  let isDue = false;
  let cost = 0;
  return () => {
    if (isDue) return;
    isDue = true;
    setTimeout(() => requestAnimationFrame(() => {
      isDue = false;
      const began = performance.now();
      show();
      cost = performance.now() - began;
    }), cost);
  };
}
