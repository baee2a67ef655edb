/**
 * Translates the regular expression of a `tokenizer.json` (Oniguruma) to one of JavaScript with equal meaning.
 *
 * Two things differ: `\s`, which in JavaScript has U+FEFF and lacks U+0085; and groups that ignore case, `(?i:...)`, which
 * are spelled out, as not every engine has them.
 */

/** Unicode White_Space, as the content of a character class. */
const SPACE = "\\x09-\\x0D\\x20\\x85\\xA0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000";

/** Letters beyond ASCII that are equal to one of ASCII where case is ignored. */
const FOLDED: Record<string, string> = { s: "\u017f", k: "\u212a" };

/** Compiles a pattern; throws SyntaxError where it is invalid. */
export function compileSplit(pattern: string): RegExp {
  let out = "";
  let inClass = false;
  const ignoresCase: boolean[] = [];
  for (let at = 0; at < pattern.length; at++) {
    const letter = pattern.charAt(at);
    if (letter === "\\") {
      const escaped = pattern.charAt(++at);
      if (escaped === "s") out += inClass ? SPACE : `[${SPACE}]`;
      else if (escaped === "S") out += `[^${SPACE}]`;
      else out += `\\${escaped}`;
      if (escaped === "S" && inClass) throw new SyntaxError("expected no \\S within a class, found one");
    } else if (!inClass && pattern.startsWith("(?i:", at)) {
      ignoresCase.push(true);
      out += "(?:";
      at += 3;
    } else if (!inClass && letter === "(") {
      ignoresCase.push(ignoresCase.at(-1) ?? false);
      out += letter;
    } else if (!inClass && letter === ")") {
      ignoresCase.pop();
      out += letter;
    } else if (ignoresCase.at(-1) && /[a-z]/i.test(letter)) {
      if (inClass) throw new SyntaxError("expected no class where case is ignored, found one");
      const lower = letter.toLowerCase();
      out += `[${lower}${lower.toUpperCase()}${FOLDED[lower] ?? ""}]`;
    } else {
      if (letter === "[") inClass = true;
      if (letter === "]") inClass = false;
      out += letter;
    }
  }
  return new RegExp(out, "gu");
}
