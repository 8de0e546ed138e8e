// The `@anthropic-ai/sdk` package.

const Anthropic = require("@anthropic-ai/sdk");
const { URL, KEY, MODEL, CHAT, run, thrown } = require("./results.cjs");

const client = new Anthropic({ baseURL: URL, apiKey: KEY });
const ASKED = { model: MODEL, messages: CHAT, max_tokens: 50, temperature: 0 };
const raised = (more, by = client) =>
  thrown(
    () => by.messages.create({ ...ASKED, ...more }),
    (error) => [error.status, error.error.error.type],
  );

run({
  async message() {
    const { content, stop_reason, usage } = await client.messages.create(ASKED);
    return [content[0].text, stop_reason, usage.output_tokens];
  },
  async streamed() {
    const stream = client.messages.stream(ASKED);
    const kinds = [];
    stream.on("streamEvent", (event) => kinds.push(event.type));
    const { content, stop_reason } = await stream.finalMessage();
    return [content[0].text, stop_reason, kinds.at(0), kinds.at(-1)];
  },
  async count() {
    return (await client.messages.countTokens({ model: MODEL, messages: CHAT })).input_tokens;
  },
  unknown_model: () => raised({ model: "none" }),
  bad_value: () => raised({ max_tokens: -1 }),
  wrong_key: () => raised({}, client.withOptions({ apiKey: "wrong" })),
});
