// The AI SDK, with its provider for servers that speak as OpenAI's does.

const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const ai = require("ai");
const { URL, KEY, MODEL, CHAT, CITY, run, thrown } = require("./results.cjs");

const settings = { name: "own", baseURL: `${URL}/v1`, supportsStructuredOutputs: true };
const provider = createOpenAICompatible({ ...settings, apiKey: KEY });
const ASKED = { model: provider(MODEL), messages: CHAT, temperature: 0, maxRetries: 0 };
const raised = (more) =>
  thrown(
    () => ai.generateText({ ...ASKED, ...more }),
    (error) => [error.name, error.statusCode],
  );

run({
  async text() {
    const answer = await ai.generateText(ASKED);
    return [answer.text, answer.finishReason, answer.usage.outputTokens];
  },
  async streamed() {
    const answer = ai.streamText(ASKED);
    let text = "";
    const kinds = new Set();
    for await (const part of answer.fullStream) {
      kinds.add(part.type);
      if (part.type === "text-delta") text += part.text;
    }
    return [text, await answer.finishReason, kinds.has("error"), kinds.has("finish")];
  },
  async tool_loop() {
    // The second step may call no tool, and so ends the loop.
    let runs = 0;
    const travel = ai.tool({
      inputSchema: ai.jsonSchema(CITY),
      execute: async () => (runs += 1) && "You are there.",
    });
    const answer = await ai.generateText({
      ...ASKED,
      maxOutputTokens: 200,
      tools: { travel },
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber ? "none" : "required" }),
      stopWhen: ai.stepCountIs(3),
    });
    const results = answer.steps.flatMap((step) => step.toolResults.map((each) => each.output));
    return [runs, answer.steps.length, results];
  },
  async object() {
    const schema = ai.jsonSchema(CITY);
    return (await ai.generateObject({ ...ASKED, schema })).object;
  },
  unknown_model: () => raised({ model: provider("none") }),
  bad_value: () => raised({ temperature: -1 }),
  wrong_key: () =>
    raised({ model: createOpenAICompatible({ ...settings, apiKey: "wrong" })(MODEL) }),
});
