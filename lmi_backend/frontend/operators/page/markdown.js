// Shows Markdown that nobody vouches for: no HTML of its own, no pictures, no styles.

import { marked } from "./vendor/marked.js";
import "./vendor/purify.js";
import { colour } from "./colours.js";
import { button, copy, h } from "./dom.js";
import { ATTRIBUTES, draw, extensions, TAGS } from "./maths.js";

const escape = (text) => text.replace(/[&<>"]/g, (mark) => `&#${mark.charCodeAt(0)};`);

marked.use({
  gfm: true,
  extensions,
  renderer: {
    html: ({ text }) => escape(text),
    // A picture's address would tell another server that it was looked at.
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

const ALLOWED = {
  ALLOWED_TAGS: [
    ..."a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre s strong".split(" "),
    ..."sub sup table tbody td th thead tr ul".split(" "),
  ],
  ALLOWED_ATTR: ["align", "class", "href", "start", "title"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};

const PARTS = {
  ALLOWED_TAGS: ["span", ...TAGS],
  ALLOWED_ATTR: ["class", ...ATTRIBUTES],
  RETURN_DOM_FRAGMENT: true,
};
const purified = (html) => DOMPurify.sanitize(html, PARTS);

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer");
});

// Renders a text that grows: blocks that are settled are left alone, selections in them too.
export class Markdown {
  #shown = [];

  constructor() {
    this.element = h("div", { class: "markdown" });
  }

  show(text) {
    const tokens = marked.lexer(text);
    const blocks = tokens.filter((token) => token.type !== "space");
    let first = 0;
    while (first < blocks.length && this.#shown[first] === blocks[first].raw) first += 1;
    // A definition of a link changes what stands before it.
    if (blocks.slice(first).some((token) => token.type === "def")) first = 0;
    while (this.element.children.length > first) this.element.lastChild.remove();
    for (const token of blocks.slice(first)) {
      const one = Object.assign([token], { links: tokens.links });
      this.element.append(this.#block(marked.parser(one)));
    }
    this.#shown = blocks.map((token) => token.raw);
  }

  #block(html) {
    const block = h("div", { class: "md" }, DOMPurify.sanitize(html, ALLOWED));
    for (const pre of block.querySelectorAll("pre")) {
      pre.tabIndex = 0;
      const name = language(pre);
      const head = h("div", { class: "block-head" }, h("span", {}, name));
      if (pre.firstElementChild) colour(pre.firstElementChild, name, purified);
      head.append(button("Copy", (event) => copy(pre.textContent, event.currentTarget)));
      const frame = h("div", { class: "block" });
      pre.replaceWith(frame);
      frame.append(head, pre);
    }
    for (const table of block.querySelectorAll("table")) {
      const frame = h("div", { class: "sideways", tabindex: 0 });
      table.replaceWith(frame);
      frame.append(table);
    }
    draw(block, purified);
    return block;
  }
}

function language(pre) {
  return pre.firstElementChild?.className.match(/language-(\S+)/)?.[1] ?? "";
}
