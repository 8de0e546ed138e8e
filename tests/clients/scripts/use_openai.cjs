// The `openai` package for Node.

const { OpenAI } = require("openai");
const { URL, KEY, MODEL, CHAT, CITY, run, thrown } = require("./results.cjs");

const client = new OpenAI({ baseURL: `${URL}/v1`, apiKey: KEY });
const ASKED = { model: MODEL, messages: CHAT, temperature: 0 };
const raised = (more, by = client) =>
  thrown(
    () => by.chat.completions.create({ ...ASKED, ...more }),
    (error) => [error.status, Boolean(error.requestID)],
  );

run({
  async chat() {
    const { choices, usage } = await client.chat.completions.create(ASKED);
    return [choices[0].message.content, choices[0].finish_reason, usage.completion_tokens];
  },
  async streamed() {
    const options = { stream: true, stream_options: { include_usage: true } };
    let text = "", ends = [], usage = [];
    for await (const chunk of await client.chat.completions.create({ ...ASKED, ...options })) {
      for (const { delta, finish_reason } of chunk.choices) {
        text += delta.content ?? "";
        if (finish_reason) ends.push(finish_reason);
      }
      if (chunk.usage) usage.push(chunk.usage.completion_tokens);
    }
    return [text, ends, usage];
  },
  async helper() {
    const stream = client.chat.completions.stream(ASKED);
    return (await stream.finalChatCompletion()).choices[0].message.content;
  },
  async tool() {
    const travel = { name: "travel", parameters: CITY };
    const tools = [{ type: "function", function: travel }];
    const tool_choice = { type: "function", function: { name: "travel" } };
    const answer = await client.chat.completions.create({ ...ASKED, tools, tool_choice });
    return answer.choices[0].message.tool_calls.map((call) => call.function.name);
  },
  async structured() {
    const json_schema = { name: "city", schema: CITY, strict: true };
    const response_format = { type: "json_schema", json_schema };
    const answer = await client.chat.completions.parse({ ...ASKED, response_format });
    return answer.choices[0].message.parsed;
  },
  async response() {
    const asked = { model: MODEL, input: CHAT, temperature: 0 };
    const whole = await client.responses.create(asked);
    const stream = client.responses.stream(asked);
    const kinds = [];
    for await (const event of stream) kinds.push(event.type);
    const final = await stream.finalResponse();
    return [whole.output_text, whole.status, final.output_text, kinds.at(0), kinds.at(-1)];
  },
  async models() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    return names;
  },
  unknown_model: () => raised({ model: "none" }),
  bad_value: () => raised({ temperature: -1 }),
  wrong_key: () => raised({}, client.withOptions({ apiKey: "wrong" })),
});
