// The messages of a conversation as they are seen.

import { button, copy, h, setText } from "./dom.js";
import { Markdown } from "./markdown.js";
import { inWords } from "./run.js";

export class Question {
  constructor(message, onEdit) {
    this.element = h("li", { class: "question" },
      h("h2", { class: "unseen" }, "You"),
      h("div", { class: "bubble" }, message.content),
      h("div", { class: "foot" }, button("Edit", onEdit, { "aria-label": "Edit this message" })));
  }
}

export class Answer {
  #markdown = new Markdown();
  #thought = h("div", { class: "thought" });
  #thinking = h("details", { class: "thinking", hidden: true }, h("summary", {}, "Reasoning"), this.#thought);
  #meter = h("span", { class: "meter" });
  #actions = h("span", { class: "actions" });
  #error = h("p", { class: "error", role: "alert", hidden: true });

  // on: { retry, resume }
  constructor(on) {
    this.on = on;
    this.element = h("li", { class: "answer" },
      h("h2", { class: "unseen" }, "Model"), this.#thinking, this.#markdown.element, this.#error,
      h("div", { class: "foot" }, this.#meter, this.#actions));
  }

  show(message, isRunning) {
    this.#markdown.show(message.content);
    this.#thinking.hidden = !message.reasoning;
    setText(this.#thought, message.reasoning ?? "");
    setText(this.#meter, message.figures ? inWords(message.figures) : "");
    this.#error.hidden = !message.error;
    setText(this.#error, message.error ?? "");
    this.element.setAttribute("aria-busy", isRunning);
    this.element.classList.toggle("running", isRunning);
  }

  // Only the last answer can be tried again or continued.
  offer(message, isLast) {
    const actions = message.content ? [button("Copy", (event) => copy(message.content, event.currentTarget))] : [];
    if (isLast) actions.push(button("Try again", this.on.retry));
    const isCut = ["stopped", "length", "failed"].includes(message.figures?.finish);
    if (isLast && isCut && message.content) actions.push(button("Continue", this.on.resume));
    this.#actions.replaceChildren(...actions);
  }

  withhold() {
    this.#actions.replaceChildren();
  }
}

// Templates of many models refuse two questions in a row: one whose answer failed is left out.
export function isUnanswered(messages, place) {
  const next = messages[place + 1];
  return messages[place].role === "user" && next && !(next.role === "assistant" && next.content);
}
