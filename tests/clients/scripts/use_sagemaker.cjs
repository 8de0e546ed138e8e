// The `@aws-sdk/client-sagemaker-runtime` package.

const sagemaker = require("@aws-sdk/client-sagemaker-runtime");
const { URL, KEY, MODEL, run, thrown } = require("./results.cjs");

const reach = (accessKeyId) =>
  new sagemaker.SageMakerRuntimeClient({
    endpoint: URL,
    region: "us-east-1",
    maxAttempts: 1,
    credentials: { accessKeyId, secretAccessKey: "any" },
  });
const client = reach(KEY);
const TEXT = { inputs: "The capital of Italy is", parameters: { max_new_tokens: 20 } };
const asked = (more) => ({
  EndpointName: MODEL,
  ContentType: "application/json",
  Body: JSON.stringify({ ...TEXT, ...more }),
});
const raised = (more, by = client) =>
  thrown(
    () => by.send(new sagemaker.InvokeEndpointCommand(asked(more))),
    (error) => [error.$metadata.httpStatusCode, error.OriginalStatusCode ?? null],
  );

run({
  async invoke() {
    const { Body } = await client.send(new sagemaker.InvokeEndpointCommand(asked()));
    return JSON.parse(Buffer.from(Body)).generated_text;
  },
  async streamed() {
    const command = new sagemaker.InvokeEndpointWithResponseStreamCommand(asked({ stream: true }));
    const parts = [];
    for await (const { PayloadPart } of (await client.send(command)).Body)
      parts.push(JSON.parse(Buffer.from(PayloadPart.Bytes)));
    const text = parts.map((part) => (part.token.special ? "" : part.token.text)).join("");
    return [text, parts.at(-1).generated_text];
  },
  bad_value: () => raised({ parameters: { temperature: -1 } }),
  wrong_key: () => raised({}, reach("wrong")),
});
