// The form of settings, which stays in this browser.

import { $ } from "./dom.js";
import { settings } from "./store.js";

const fields = () => [...$("settings-form").elements].filter((field) => field.name);

// Fills the form with what was kept, and keeps what changes.
export function readForm() {
  const kept = settings.get();
  for (const field of fields()) field.value = kept[field.name] ?? "";
  $("settings-form").addEventListener("input", keep);
  $("settings-form").addEventListener("submit", (event) => event.preventDefault());
  $("reset").addEventListener("click", () => {
    for (const field of fields()) field.value = "";
    keep();
  });
}

function keep() {
  const pairs = fields().map(({ name, value }) => [name, value]);
  settings.set({ ...settings.get(), ...Object.fromEntries(pairs) });
}

// What is set. What cannot be is sent too: the server says why.
export function given() {
  const found = {};
  for (const field of fields()) {
    const value = field.value.trim();
    if (value) found[field.name] = field.type === "number" ? Number(value) : value;
  }
  return found;
}

// Lists the models by the names that requests may use; keeps the choice.
export function showModels(cards) {
  const select = $("model");
  const chosen = select.value || settings.get().model;
  const names = cards.map((card) => card.id);
  const shown = [...select.options].map((option) => option.value);
  if (shown.join("\n") === names.join("\n")) return;
  select.replaceChildren(...cards.map((card) => new Option(label(card, cards), card.id)));
  if (names.includes(chosen)) select.value = chosen;
}

function label(card, cards) {
  if (card.parent) return `${card.id} (adapter of ${card.parent})`;
  const first = cards.find((other) => !other.parent && other.root === card.root);
  return first === card ? card.id : `${card.id} (another name of ${first.id})`;
}

$("model").addEventListener("change", () => {
  settings.set({ ...settings.get(), model: $("model").value });
});
