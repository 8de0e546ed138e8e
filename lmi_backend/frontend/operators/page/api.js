// Speaks to the server: the key, errors in words, event streams.

const KEY = "lmi.key";
const BETWEEN = 500;
const GRACE = 300;
const CLOSING = 100;
const PATIENCE = 45000;

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

export class ApiError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }

  // Nobody answered.
  get isAway() { return this.status === 0; }

  // What is away may be there later, and so may be what starts.
  get isPassing() { return this.isAway || this.status === 503; }

  get wantsKey() { return this.status === 401 || this.status === 403; }
}

async function request(path, options = {}) {
  const headers = { accept: "application/json", ...options.headers };
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer.");
  }
  if (response.ok) return response;
  throw new ApiError(await reason(response), response.status);
}

async function reason(response) {
  const text = await response.text().catch(() => "");
  let message = text;
  try {
    const body = JSON.parse(text);
    message = body.error?.message ?? body.message ?? body.error ?? text;
  } catch { /* It is plain text. */ }
  const later = response.headers.get("retry-after");
  const again = later ? ` Try again in ${later} s.` : "";
  return `${message || response.statusText || `Status ${response.status}`}${again}`;
}

export async function getJson(path, options) {
  return (await request(path, { ...options, cache: "no-store" })).json();
}

// Yields the objects of a stream that a body asks for. Where its connection breaks, what follows comes on another.
export async function* stream(path, body, signal) {
  const stop = new AbortController();
  const options = { method: "POST", body: JSON.stringify(body), signal: stop.signal };
  const came = { id: "", isOver: false, signal };
  // The first id may be on its way; without it the answer could not be cancelled.
  signal.addEventListener("abort", () => setTimeout(() => stop.abort(), came.id ? 0 : GRACE));
  const leave = () => leaveAnswer(path, options.body, came);
  addEventListener("pagehide", leave);
  try {
    for (let broke = 0; !came.isOver;) {
      const before = came.id;
      try {
        yield* part(path, options, came);
      } catch (error) {
        const now = performance.now();
        if (came.id !== before || !broke) broke = now;
        if (came.id && error.status === 404) throw new ApiError("The answer broke off.");
        if (!came.id || !error.isPassing || now - broke > PATIENCE) throw error;
        await pause(signal);
      }
    }
  } finally {
    // First, and browsers close it in a moment: else the model's end of it may come as a broken connection.
    stop.abort();
    setTimeout(() => {
      removeEventListener("pagehide", leave);
      leave();
    }, CLOSING);
  }
}

// Without this the answer goes on for its window, though nobody comes back for it.
function leaveAnswer(path, body, came) {
  if (!came.id || came.isOver) return;
  came.isOver = true;
  const stop = new AbortController();
  const headers = { "last-event-id": came.id, "x-lmi-resumable": "0" };
  const options = { method: "POST", body, headers, signal: stop.signal, keepalive: true };
  request(path, options).catch(() => {}).finally(() => stop.abort());
}

async function* part(path, options, came) {
  const headers = { "content-type": "application/json", accept: "text/event-stream", "x-lmi-resumable": "1" };
  if (came.id) headers["last-event-id"] = came.id;
  const response = await request(path, { ...options, headers });
  if (!(response.headers.get("content-type") ?? "").startsWith("text/event-stream")) {
    throw new ApiError("This model does not stream chats. Its engine needs option.openai=true, or use the LMI API.", 502);
  }
  const decoder = new TextDecoder();
  const events = new EventParser();
  const reader = response.body.getReader();
  try {
    for (;;) {
      const { done, value } = await read(reader);
      if (done) throw new ApiError("The answer broke off.");
      for (const { id, data } of events.feed(decoder.decode(value, { stream: true }))) {
        came.id = id;
        came.isOver = data === "[DONE]";
        came.signal.throwIfAborted();
        if (came.isOver) return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new ApiError(chunk.error.message ?? String(chunk.error), 500);
        yield chunk;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function pause(signal) {
  return new Promise((resolve, reject) => {
    setTimeout(() => (signal.aborted ? reject(signal.reason) : resolve()), BETWEEN);
  });
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The connection was lost.");
  }
}

// Reads server-sent events, in whatever parts they come.
export class EventParser {
  #rest = "";
  #data = [];
  #id = "";

  feed(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    const found = [];
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length) found.push({ id: this.#id, data: this.#data.join("\n") });
        this.#data = [];
      } else if (line.startsWith("data:")) {
        this.#data.push(valueOf(line, 5));
      } else if (line.startsWith("id:")) {
        this.#id = valueOf(line, 3);
      }
    }
    return found;
  }
}

function valueOf(line, start) {
  return line.slice(line[start] === " " ? start + 1 : start);
}
