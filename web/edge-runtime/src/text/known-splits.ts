/**
 * Where vocabularies split text before merging, as it stands in `tokenizer.json`: the expressions that are run, and no
 * others. A bundle may be a stranger's, and `(a+)+$` on some letters never ends. The same list as
 * `edge_runtime/text/splits.py`, of which the vectors are.
 */
const SUFFIX = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const UPPER = String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const LOWER = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;
const MARKS = String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*`;
const SPACES = String.raw`|\s*[\r\n]+|\s+(?!\S)|\s+`;
const FIRST = String.raw`[^\r\n\p{L}\p{N}]?`;

/** Words of capitals and small letters, with what follows an apostrophe. */
const cased = (suffix: string, numbers: string) =>
  `${FIRST}${UPPER}*${LOWER}+${suffix}|${FIRST}${UPPER}+${LOWER}*${suffix}|` +
  String.raw`${numbers}| ?[^\s\p{L}\p{N}]+[\r\n/]*${SPACES}`;

export const KNOWN_SPLITS: ReadonlySet<string> = new Set([
  String.raw`\p{N}`,
  String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
  String.raw`${SUFFIX}|${FIRST}\p{L}+|\p{N}|${MARKS}${SPACES}`,
  String.raw`${SUFFIX}|${FIRST}[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*${SPACES}`,
  String.raw`${SUFFIX}|${FIRST}\p{L}+|\p{N}{1,3}|${MARKS}${SPACES}`,
  cased(`${SUFFIX}?`, String.raw`\p{N}{1,3}`),
  cased("", String.raw`\p{N}`),
  String.raw`${SUFFIX}|${FIRST}\p{L}+| ?\p{N}{1,2}|${MARKS}${SPACES}`,
]);
