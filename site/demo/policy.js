// Which hosts the code of a page may talk to: the site's own and no other, by its content
// security policy (CSP).
//
// A Worker does not obey the page's policy but that of the answer its own file came with.
// Where the host sends one, the Worker is started from its file. Where it sends none, the
// policy written into the page is all there is, and a Worker started from a blob inherits
// it: so it is started from a blob that imports the file.

const OWN = new Set(["'none'", "'self'", "'unsafe-eval'", "'wasm-unsafe-eval'"]);

// "sent": the host closes the network; "page": the page's own policy does; "": nobody
// does, as where a page is served as it lies in the checkout.
export async function closedBy(file) {
  if (closes(await sentWith(file))) return "sent";
  const own = document.querySelector('meta[http-equiv="Content-Security-Policy"]')?.content ?? "";
  return closes(own) && own.includes("blob:") ? "page" : "";
}

// Whether code under these policies, all of which hold, asks its own host alone for data and
// for scripts.
function closes(policies) {
  return policies.split(",").some((policy) => {
    const all = policy.trim().split(/\s*;\s*/).map((one) => one.split(/\s+/));
    const said = new Map(all.reverse().map(([name, ...sources]) => [name.toLowerCase(), sources]));
    said.set("script-src-elem", said.get("script-src-elem") ?? said.get("script-src"));
    return ["connect-src", "script-src-elem"].every((name) => said.get(name)?.every((one) => OWN.has(one)));
  });
}

let early = null; // {href, opening}: begun while its page was still being built

// Begins to open a Worker, which openWorker gives out when it is first asked for this file.
export function openEarly(file) {
  const opening = opened(file).then((worker) => {
    const [heard, taken] = [[], new AbortController()];
    for (const type of ["message", "error"]) {
      worker.addEventListener(type, (event) => heard.push(event), { signal: taken.signal });
    }
    return { worker, heard, taken };
  });
  opening.catch(() => {}); // told by openWorker
  early = { href: file.href, opening };
}

// {worker, heard}: the Worker, and the events it already had when nobody listened.
export async function openWorker(file) {
  const mine = early?.href === file.href ? early.opening : null;
  early = null;
  if (!mine) return { worker: await opened(file), heard: [] };
  const { worker, heard, taken } = await mine;
  taken.abort();
  return { worker, heard };
}

async function opened(file) {
  if ((await closedBy(file)) !== "page") return new Worker(file, { type: "module" });
  const code = new Blob([`import ${JSON.stringify(file.href)};`], { type: "text/javascript" });
  const blob = URL.createObjectURL(code);
  const worker = new Worker(blob, { type: "module" });
  // From now on the blob is not needed by name, but some browsers read it a turn later.
  worker.addEventListener("message", () => URL.revokeObjectURL(blob), { once: true });
  return worker;
}

async function sentWith(file) {
  try {
    const answer = await fetch(file, { method: "HEAD" });
    return (answer.ok && answer.headers.get("Content-Security-Policy")) || "";
  } catch {
    return ""; // no answer: then the Worker's own start will tell why
  }
}
