// Formulas in answers: TeX between dollars or \( \) and \[ \], drawn by the browser as MathML.

const SIGNS = [["$$", "$$"], ["\\[", "\\]"], ["\\(", "\\)"], ["$", "$"]];
// Between single dollars prices are likelier than formulas: no blank inside, no digit after them.
const INLINE = /^\$(?![\s$])((?:\\[^]|[^\\$\n])*?(?:\\[^]|[^\\$\s]))\$(?![\d$])|^\\\(([^]{1,2000}?)\\\)|^(?:\$\$([^$\n]+?)\$\$|\\\[([^\n]+?)\\\])/;
const BLOCK = /^ {0,3}(?:\$\$(?:(?!\n\s*\n|\$\$)[^])+\$\$|\\\[(?:(?!\n\s*\n|\\\])[^])+\\\])[ \t]*(?:\n|$)/;
const BEGIN = { block: /\n(?= {0,3}(?:\$\$|\\\[))/, inline: /\$|\\[([]/ };
const OPTIONS = { throwOnError: true, trust: false, maxSize: [40, 40], maxExpand: 500 };

const escape = (text) => text.replace(/[&<>"]/g, (mark) => `&#${mark.charCodeAt(0)};`);

// The tags and attributes that Temml writes and a formula needs.
export const TAGS = [
  ..."math menclose merror mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts".split(" "),
  ..."mroot mrow ms mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover".split(" "),
];
export const ATTRIBUTES = (
  "accent accentunder columnalign columnspan depth display displaystyle fence form height largeop linethickness " +
  "lspace mathvariant maxsize minsize movablelimits rowspan rspace scriptlevel separator stretchy symmetric voffset width"
).split(" ");

function formula(name, level, pattern) {
  return {
    name,
    level,
    start: (text) => {
      const place = text.search(BEGIN[level]);
      return place < 0 ? undefined : place + (level === "block");
    },
    tokenizer: (text) => {
      const found = pattern.exec(text);
      return found ? { type: name, raw: found[0], text: found[0].trim() } : undefined;
    },
    renderer: ({ text }) => {
      const code = `<code class="tex">${escape(text)}</code>`;
      return level === "block" ? `<p>${code}</p>` : code;
    },
  };
}

export const extensions = [formula("mathsBlock", "block", BLOCK), formula("maths", "inline", INLINE)];

// Draws the formulas in a block; those that Temml cannot read stay as they were written.
export async function draw(block, sanitize) {
  const codes = [...block.querySelectorAll("code.tex")];
  if (codes.length === 0) return;
  const { default: temml } = await import("./vendor/temml.js");
  for (const code of codes) {
    const text = code.textContent;
    const [begin, end] = SIGNS.find((signs) => text.startsWith(signs[0]));
    const displayMode = begin === "$$" || begin === "\\[";
    try {
      const drawn = temml.renderToString(text.slice(begin.length, -end.length), { ...OPTIONS, displayMode });
      // The page's policy allows no styles but its own.
      code.replaceWith(sanitize(drawn.replace(/ style="[^"]*"/g, "")));
    } catch {
      // The text says more than an error would.
    }
  }
}
