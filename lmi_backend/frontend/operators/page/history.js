// The list of conversations of this browser.

import { $, button, download, h } from "./dom.js";
import { chats, titleOf } from "./store.js";

export class History {
  #open;
  #current = "";

  // open(chat) shows one, or a new one for none.
  constructor(open) {
    this.#open = open;
    $("new-chat").addEventListener("click", () => this.#choose(null));
    $("export").addEventListener("click", () => {
      download("lmi-backend-history.json", JSON.stringify(chats.all(), null, 2));
    });
    $("delete-all").addEventListener("click", () => this.#deleteAll());
    addEventListener("storage", () => this.show(this.#current));
  }

  show(current) {
    this.#current = current;
    const all = chats.all();
    $("chats").replaceChildren(...all.map((chat) => this.#row(chat)));
    $("no-chats").hidden = all.length > 0;
    for (const id of ["export", "delete-all"]) $(id).disabled = !all.length;
  }

  #row(chat) {
    const title = titleOf(chat);
    const isCurrent = chat.id === this.#current;
    return h("li", {},
      button(title, () => this.#choose(chat), {
        class: "plain title", title, "aria-current": isCurrent ? "true" : null,
      }),
      button("×", () => this.#remove(chat), { class: "plain remove", "aria-label": `Delete “${title}”` }));
  }

  #choose(chat) {
    if ($("history").matches(":popover-open")) $("history").hidePopover();
    this.#open(chat);
  }

  #remove(chat) {
    chats.remove(chat.id);
    if (chat.id === this.#current) this.#open(null);
    else this.show(this.#current);
    $("new-chat").focus();
  }

  #deleteAll() {
    if (!confirm("Delete all conversations of this browser?")) return;
    for (const chat of chats.all()) chats.remove(chat.id);
    this.#choose(null);
  }
}
