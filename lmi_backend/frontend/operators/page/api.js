// Speaks to the server: the key, errors in words, event streams.

const KEY = "lmi.key";

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

// Yields the objects of a stream that a body asks for.
export async function* stream(path, body, signal) {
  const response = await request(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "content-type": "application/json", accept: "text/event-stream" },
    signal,
  });
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
      for (const data of events.feed(decoder.decode(value, { stream: true }))) {
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new ApiError(chunk.error.message ?? String(chunk.error), 500);
        yield chunk;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
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

  feed(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    const found = [];
    for (const line of lines) {
      if (line === "") {
        if (this.#data.length) found.push(this.#data.join("\n"));
        this.#data = [];
      } else if (line.startsWith("data:")) {
        this.#data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
    return found;
  }
}
