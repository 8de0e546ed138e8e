// Small helpers for the document.

export const $ = (id) => document.getElementById(id);

// Makes an element: h("p", { class: "hint" }, "text", child, …).
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function button(text, onclick, attributes = {}) {
  return h("button", { type: "button", class: "plain", onclick, ...attributes }, text);
}

// Sets a text only if it is another, so that a selection in it stays.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Tells a screen reader something that the eye sees anyway.
export function say(text) {
  $("announcement").textContent = text;
}

export async function copy(text, pressed) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS a browser has no clipboard for scripts.
    const area = h("textarea", { class: "unseen" });
    area.value = text;
    (pressed.closest("dialog") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    pressed.focus();
  }
  const before = pressed.textContent;
  if (before === "Copied") return;
  pressed.textContent = "Copied";
  say("Copied");
  setTimeout(() => { pressed.textContent = before; }, 1200);
}

export function download(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
