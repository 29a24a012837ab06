// Runs a plan where there is no document.
import { load } from "/peaks/peaks.js";
onmessage = async ({ data: { url, inputs } }) => {
  const run = await load(url);
  const found = await run(inputs);
  const { ok } = await run.check();
  run.close();
  postMessage({ found, ok, page: typeof document });
};
