// What of a plan is read first.

import { count, duration } from "./figures.js";

export function planRows(plan) {
  const { memory } = plan;
  const rows = [
    ["Engine", `${plan.engine}, ${plan.mode} mode`],
    ["Model", plan.model || "none"],
    ["Workers", workers(plan)],
    ["Parallel", `tensor ${plan.tensor_parallel_degree}, pipeline ${plan.pipeline_parallel_degree}`],
    ["Memory", memory && `${bytes(memory.weights)} weights and ${bytes(memory.kv_cache)} KV cache a device; ${count(memory.num_tokens)} tokens fit at once`],
    ["Requests", `${count(plan.max_running)} at once in a worker, ${count(plan.queue_size)} may wait, ${duration(plan.request_timeout)} each`],
    ["Streams", plan.stream_flush == null ? "tokens share a response as the load says" : `tokens of ${plan.stream_flush * 1000} ms share a response`],
    ["Interpreter", plan.python],
    ["Arguments", pairs({ ...plan.engine_arguments, ...plan.passthrough })],
  ];
  return rows.filter(([, value]) => value);
}

function workers({ device_groups, nodes }) {
  const devices = device_groups.map((group) => group.join(",") || "CPU").join("; ");
  return `${device_groups.length} on ${devices}${nodes > 1 ? `, each over ${nodes} machines` : ""}`;
}

function pairs(values) {
  const text = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  return Object.entries(values).map(([name, value]) => `${name}=${text(value)}`).join("  ");
}

function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = number > 0 ? Math.min(4, Math.floor(Math.log2(number) / 10)) : 0;
  return `${(number / 1024 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}
