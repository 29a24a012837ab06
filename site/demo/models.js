// Files of a trained model that this site was built with (./dev site --models).

const MODELS = new URL("../models/", import.meta.url);

// [[name, ArrayBuffer], …], or null where the site has none.
//   onBytes(bytes so far, bytes of all)
export async function fetchedModel(model, onBytes) {
  const answer = await fetch(new URL("models.json", MODELS)).catch(() => null);
  const { [model]: files } = answer?.ok ? await answer.json() : {};
  if (!files) return null;
  const all = Object.values(files).reduce((sum, n) => sum + n, 0);
  let so_far = 0;
  const got = [];
  for (const [name, size] of Object.entries(files)) {
    const url = new URL(`${model}/${name}`, MODELS);
    got.push([name, await whole(url, name, size, (n) => onBytes((so_far += n), all))]);
  }
  return got;
}

async function whole(url, name, size, onBytes) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${name} of the model could not be loaded (${answer.status} ${answer.statusText})`);
  const into = new Uint8Array(size);
  let at = 0;
  for (const reader = answer.body.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (at + value.length > size) throw new Error(`${name} of the model is larger than the ${size} bytes listed by this site`);
    into.set(value, at);
    at += value.length;
    onBytes(value.length);
  }
  if (at !== size) throw new Error(`${name} of the model is incomplete (${at} of ${size} bytes); reload the page`);
  return into.buffer;
}
