// Lists the paths of /openapi.json, with the schemas of their bodies.

import { getJson } from "./api.js";
import { $, h } from "./dom.js";

// What is below is made when it is opened: all schemas together are megabytes.
function folded(title, below) {
  const details = h("details", {}, h("summary", {}, title));
  details.addEventListener("toggle", () => details.append(...below()), { once: true });
  return details;
}

function shown(value, schemas) {
  const text = JSON.stringify(value, null, 2);
  const names = new Set([...text.matchAll(/"#\/components\/schemas\/([^"]+)"/g)].map(([, name]) => name));
  return [h("pre", {}, text), ...[...names].map((name) => folded(name, () => shown(schemas[name], schemas)))];
}

function row(path, method, operation, schemas) {
  const [key = ""] = operation.security.flatMap(Object.keys);
  const [body] = Object.values(operation.requestBody?.content ?? {});
  const text = operation.description ?? operation.summary ?? "";
  const below = () => [h("p", {}, text), ...(body ? shown(body.schema, schemas) : [h("p", {}, "No body.")])];
  return folded(`${method.toUpperCase()} ${path}${key && ` · ${key}`}`, below);
}

try {
  const { paths, components } = await getJson("openapi.json");
  const clients = new Map();
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const [client] = operation.tags;
      clients.set(client, [...(clients.get(client) ?? []), row(path, method, operation, components.schemas)]);
    }
  }
  $("paths").append(...[...clients].flatMap(([client, rows]) => [h("h2", {}, client), ...rows]));
} catch (error) {
  const advice = error.wantsKey ? " Enter it in the playground, in this tab, and come back." : "";
  $("problem").textContent = error.message + advice;
}
