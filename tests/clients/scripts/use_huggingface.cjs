// The `@huggingface/inference` package.

const { InferenceClient } = require("@huggingface/inference");
const { URL, KEY, MODEL, CHAT, run, thrown } = require("./results.cjs");

// Its text generation names the server's URL as the model; a server of one model needs no more.
const named = (url, { headers, ...more }) =>
  fetch(url, { ...more, headers: { ...headers, "x-amzn-sagemaker-target-model": MODEL } });
const client = new InferenceClient(KEY, { endpointUrl: URL, fetch: named });
const TEXT = { inputs: "The capital of Italy is", parameters: { max_new_tokens: 20, do_sample: false } };
const ASKED = { model: MODEL, messages: CHAT, temperature: 0 };
const raised = (more, by = client) =>
  thrown(
    () => by.chatCompletion({ ...ASKED, ...more }),
    (error) => [error.httpResponse?.status],
  );

run({
  text: async () => (await client.textGeneration(TEXT)).generated_text,
  async text_streamed() {
    let text = "";
    // It asks for OpenAI's stream, and passes the chunks on.
    for await (const chunk of client.textGenerationStream(TEXT)) text += chunk.choices[0]?.text ?? "";
    return text;
  },
  async chat() {
    const { choices } = await client.chatCompletion(ASKED);
    return [choices[0].message.content, choices[0].finish_reason];
  },
  async chat_streamed() {
    let text = "";
    for await (const chunk of client.chatCompletionStream(ASKED))
      text += chunk.choices[0]?.delta.content ?? "";
    return text;
  },
  unknown_model: () => raised({ model: "none" }),
  bad_value: () => raised({ temperature: -1 }),
  wrong_key: () => raised({}, new InferenceClient("wrong", { endpointUrl: URL })),
});
