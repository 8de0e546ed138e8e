// The live view: asks for the state once a second while it is seen.

import { getJson } from "./api.js";
import { $ } from "./dom.js";
import { ModelCard } from "./model.js";

const EVERY_MS = 1000;
const AGAIN_MS = 2000;

export class Live {
  #cards = new Map();
  #timer = 0;
  #round = 0;

  // fine() is called with each answer, showProblem(error) where there is none.
  constructor(fine, showProblem) {
    Object.assign(this, { fine, showProblem });
  }

  watch(isSeen) {
    clearTimeout(this.#timer);
    this.#round += 1;
    if (isSeen) this.#look(this.#round);
  }

  async #look(round) {
    const began = performance.now();
    let pause = EVERY_MS;
    try {
      const state = await getJson(`/api/state?${this.#wanted()}`);
      if (round !== this.#round) return;
      this.#show(state);
      this.fine();
    } catch (error) {
      if (round !== this.#round) return;
      this.showProblem(error);
      $("live").classList.add("away");
      for (const card of this.#cards.values()) card.unknown();
      // A key that is not let in will not be a second later.
      if (error.wantsKey) return;
      pause = AGAIN_MS;
    }
    this.#timer = setTimeout(() => this.#look(round), pause - Math.min(pause / 2, performance.now() - began));
  }

  #wanted() {
    const parameters = new URLSearchParams();
    for (const [name, card] of this.#cards) {
      if (card.isLogOpen) parameters.set(`log_after.${name}`, card.lastLine);
    }
    return parameters;
  }

  #show({ models }) {
    $("live").classList.remove("away");
    $("no-models").hidden = models.length > 0;
    const names = new Set(models.map(({ model }) => model));
    for (const [name, card] of this.#cards) {
      if (names.has(name)) continue;
      card.element.remove();
      this.#cards.delete(name);
    }
    for (const state of models) {
      if (!this.#cards.has(state.model)) {
        const card = new ModelCard(state.model);
        this.#cards.set(state.model, card);
        $("models").append(card.element);
      }
      this.#cards.get(state.model).show(state);
    }
  }
}
