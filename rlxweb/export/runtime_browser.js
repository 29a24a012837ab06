// --- the browser ---

async function findAdapter() {
  const gpu = globalThis.navigator?.gpu;
  if (!gpu) {
    throw new RlxError("no-webgpu", globalThis.isSecureContext === false
      ? "WebGPU is available only to pages loaded over https or from localhost, and this page was not"
      : "this browser has no WebGPU; current Chrome, Edge, Firefox and Safari have it");
  }
  const adapter = await gpu.requestAdapter();
  if (!adapter) throw new RlxError("no-adapter", "this browser offers no GPU: the GPU is blocked, disabled or missing");
  return adapter;
}

function checkFits(offered, limits, features, problem) {
  const lacks = features.filter((name) => !offered.features.has(name)).map((name) => `the feature ${name}`);
  for (const [name, needed] of Object.entries(limits)) {
    const has = offered.limits[name];
    // Of alignments the smaller is the better.
    const fits = name.startsWith("min") ? has <= needed : has >= needed;
    if (!fits) lacks.push(`${name}: ${said(needed)} needed, ${has === undefined ? "unknown" : said(has)} here`);
  }
  if (lacks.length) throw new RlxError("limits", `${problem}: ${lacks.join("; ")}. Export a smaller batch, or use another device`);
}

// Browsers say as much of an adapter as they like.
function factsOf(offered) {
  const info = offered.info ?? offered.adapterInfo ?? {};
  const { vendor = "", architecture = "", device = "", description = "" } = info;
  const isFallback = info.isFallbackAdapter ?? offered.isFallbackAdapter;
  const software = !!isFallback || /swiftshader|llvmpipe|lavapipe|basic render/i.test([vendor, architecture, device, description].join(" "));
  return { vendor, architecture, device, description, software };
}

// "rrwu" → ["rrw", "u"]: storage bindings are group 0, a last uniform is group 1.
function groupsOf(layout) {
  return layout.endsWith("u") ? [layout.slice(0, -1), "u"] : [layout];
}

// --- files ---

async function readPlan(url, signal) {
  const text = asText(await fetched(url, signal));
  let plan;
  try {
    plan = JSON.parse(text);
  } catch (error) {
    throw new RlxError("plan", `${url} is not a valid plan: ${error.message} (${said(text.length)} characters)`, error);
  }
  if (plan?.schema !== SCHEMA) {
    throw new RlxError("plan", `${url} has schema ${plan?.schema ?? "none"}, but this module reads ${SCHEMA}; use both from the same export`);
  }
  return plan;
}

// The bytes at `url`: so many, where that is known.
async function fetched(url, signal, nbytes = null) {
  const refused = (problem, error) => (signal?.aborted ? signal.reason
    : new RlxError("fetch", `${url} could not be loaded: ${problem}${error ? ` (${error.message})` : ""}`, error));
  const answer = await fetch(url, { signal }).catch((error) => { throw refused("no answer", error); });
  const { ok, status, headers, body } = answer;
  if (!ok) throw refused(`the server answered ${status}`);
  const length = headers.get("content-encoding") ? null : headers.get("content-length");
  const wanted = nbytes ?? (length === null ? null : Number(length));
  const [parts, reader] = [[], body.getReader()];
  let got = 0;
  const arrived = () => `${said(got)} of ${wanted === null ? "an unknown number of" : said(wanted)} bytes arrived`;
  for (;;) {
    const { done, value } = await reader.read().catch((error) => { throw refused(arrived(), error); });
    if (done) break;
    parts.push(value);
    got += value.length;
  }
  const bytes = parts.length === 1 ? parts[0] : new Uint8Array(await new Blob(parts).arrayBuffer());
  if (headers.get("content-type")?.includes("html") && /^\s*</.test(asText(bytes.subarray(0, 99)))) {
    throw refused(`the server answered with an HTML page (${arrived()}): the file does not exist`);
  }
  if (got !== (wanted ?? got)) throw refused(`${arrived()}: the file is truncated, or from another export`);
  return bytes;
}

function asText(bytes) {
  return new TextDecoder().decode(bytes);
}

