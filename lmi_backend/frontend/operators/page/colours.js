// Colours for code in answers.

// Code that grows is coloured again and again.
const LONGEST = 20_000;

export async function colour(code, language, sanitize) {
  const text = code.textContent;
  if (!language || text.length > LONGEST) return;
  const { default: highlight } = await import("./vendor/highlight.js");
  if (!highlight.getLanguage(language)) return;
  code.replaceChildren(sanitize(highlight.highlight(text, { language, ignoreIllegals: true }).value));
}
