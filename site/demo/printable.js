// Text of strangers, as it is shown: names in a recording, names of files, programs that
// came with a link. What would hide text, reorder it or end a line is written as an escape,
// \u202e, so that what is read is what is there.

// As rlxweb's own `printable`: controls, invisible characters and marks of direction, halves
// of characters, separators; but not the joiners of letters and emoji.
const HIDING = "(?![\\u200c\\u200d])[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}]";
const IN_A_LINE = new RegExp(HIDING, "gu");
// In texts, which may be programs, also what has no look: letters that are blank, selectors of variants but for
// those of pictures. A name of such letters is a name to Python.
const BLANK = "(?![\\u200c-\\u200d\\ufe0e-\\ufe0f])\\p{Default_Ignorable_Code_Point}";
const IN_A_TEXT = new RegExp(`(?![\\t\\n])(?:${HIDING}|${BLANK})`, "gu");
const SHORT = { "\t": "\\t", "\n": "\\n", "\r": "\\r" };
const MOST = 120;

// One line: a name. The middle of a long one is left out.
export function printable(text, most = MOST) {
  const whole = String(text);
  const half = Math.floor(most / 2);
  const short = whole.length <= most ? whole : `${whole.slice(0, half)} … ${whole.slice(-half)}`;
  return short.replace(IN_A_LINE, escaped);
}

// A text of lines, each as `printable` has it, but whole.
export function printableLines(text) {
  return String(text).replace(IN_A_TEXT, escaped);
}

// The first character that the screen would not show as it is: {code, line}, or null.
export function hiding(text) {
  const at = text.search(IN_A_TEXT);
  if (at < 0) return null;
  return { code: named(text.codePointAt(at)), line: text.slice(0, at).split("\n").length };
}

function escaped(character) {
  if (character in SHORT) return SHORT[character];
  const code = character.codePointAt(0);
  if (code < 0x100) return `\\x${hex(code, 2)}`;
  return code < 0x10000 ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
}

function named(code) {
  return `U+${hex(code, 4).toUpperCase()}`;
}

function hex(code, digits) {
  return code.toString(16).padStart(digits, "0");
}
