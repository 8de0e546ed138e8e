// What stays in this browser: conversations, one entry each, and settings.

const PREFIX = "lmi.chat.";
const SETTINGS = "lmi.settings";
const MOST = 200;

function read(name) {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null;
  }
}

// A full store loses its oldest conversations first.
function write(name, value) {
  for (;;) {
    try {
      localStorage.setItem(name, JSON.stringify(value));
      return;
    } catch {
      const oldest = chats.all().filter((chat) => PREFIX + chat.id !== name).pop();
      if (!oldest) return;
      chats.remove(oldest.id);
    }
  }
}

export const chats = {
  // The latest first.
  all() {
    const names = Object.keys(localStorage).filter((name) => name.startsWith(PREFIX));
    const found = names.map(read).filter((chat) => chat?.id);
    return found.sort((a, b) => b.updated - a.updated);
  },
  get: (id) => read(PREFIX + id),
  save(chat) {
    chat.updated = Date.now();
    write(PREFIX + chat.id, chat);
    for (const old of chats.all().slice(MOST)) chats.remove(old.id);
  },
  remove: (id) => localStorage.removeItem(PREFIX + id),
};

export const settings = {
  get: () => read(SETTINGS) ?? {},
  set: (values) => write(SETTINGS, values),
};

export function newChat(mode) {
  const id = `${Date.now().toString(36)}${Math.random().toString(36).slice(2, 8)}`;
  return { id, mode, updated: 0, messages: [], text: "" };
}

export function titleOf(chat) {
  const text = chat.mode === "chat" ? (chat.messages[0]?.content ?? "") : chat.text;
  return text.trim().replace(/\s+/g, " ").slice(0, 80) || "Untitled";
}
