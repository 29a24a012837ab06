// The model's files: of this site, where it was built with them, or of the visitor.
import { fetchedModel } from "../models.js";

export const WANTED = ["model.safetensors", "config.json", "tokenizer.json"];

export const fetched = (onBytes) => fetchedModel("minilm", onBytes);

// Those that somebody chose or dropped, the same shape; an Error that names what is missing.
export async function chosen(files) {
  const byName = new Map(Array.from(files, (file) => [file.name, file]));
  const missing = WANTED.filter((name) => !byName.has(name));
  if (missing.length) {
    const given = [...byName.keys()].join(", ") || "no file";
    throw new Error(`${missing.join(" and ")} ${missing.length > 1 ? "are" : "is"} missing: got ${given}. Choose all ${WANTED.length} files together`);
  }
  const wanted = [...byName].filter(([name]) => /\.(safetensors|json)$/.test(name));
  return Promise.all(wanted.map(async ([name, file]) => [name, await file.arrayBuffer()]));
}
