// Run the functions of a script and print what each returned as one JSON object.

const { TEST_URL: URL, TEST_KEY: KEY, TEST_MODEL: MODEL } = process.env;

async function run(functions) {
  const results = {};
  for (const [name, each] of Object.entries(functions)) {
    try {
      results[name] = await each();
    } catch (error) {
      // A test says which are expected.
      results[name] = { raised: error.constructor.name, text: String(error).slice(0, 1000) };
    }
  }
  console.log(JSON.stringify(results));
}

// What a call threw: its class, and what `read` takes from it.
async function thrown(call, read) {
  try {
    await call();
  } catch (error) {
    return [error.constructor.name, ...read(error)];
  }
  return null;
}

const CHAT = [{ role: "user", content: "What is the capital of Italy?" }];
const CITY = {
  type: "object",
  properties: { city: { enum: ["Rome"] } },
  required: ["city"],
  additionalProperties: false,
};

module.exports = { URL, KEY, MODEL, CHAT, CITY, run, thrown };
