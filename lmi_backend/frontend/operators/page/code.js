// A request as others write it.

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function asCurl(path, body, hasKey) {
  const lines = [`curl -N ${location.origin}${path}`, "-H 'Content-Type: application/json'"];
  if (hasKey) lines.push('-H "Authorization: Bearer $LMI_API_KEY"');
  lines.push(`-d ${quote(JSON.stringify(body, null, 2))}`);
  return lines.join(" \\\n  ");
}

export function asPython(path, body, hasKey) {
  const isChat = path.endsWith("/chat/completions");
  const key = hasKey ? 'os.environ["LMI_API_KEY"]' : '"none"';
  const { stream_options: _, ...rest } = body;
  const given = Object.entries(rest).map(([name, value]) => `    ${name}=${python(value, 1)},\n`);
  const text = isChat ? "chunk.choices[0].delta.content" : "chunk.choices[0].text";
  return `${hasKey ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${location.origin}/v1`)}, api_key=${key})
stream = client.${isChat ? "chat.completions" : "completions"}.create(
${given.join("")})
for chunk in stream:
    if chunk.choices:
        print(${text} or "", end="", flush=True)
print()
`;
}

// JSON's texts and numbers are Python's too; the rest is spelled otherwise.
function python(value, depth) {
  const indent = "    ".repeat(depth + 1);
  const end = "    ".repeat(depth);
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) {
    return `[\n${value.map((item) => `${indent}${python(item, depth + 1)},\n`).join("")}${end}]`;
  }
  if (typeof value === "object") {
    const pairs = Object.entries(value).map(([name, item]) => `"${name}": ${python(item, depth + 1)}`);
    return `{${pairs.join(", ")}}`;
  }
  return JSON.stringify(value);
}
