// Code in a link: the fragment of the address, deflated, in base64url. It goes nowhere:
// a browser does not send the fragment to the server.

const MOST_CHARACTERS = 100_000;
const MOST_LINES = 5_000; // of many more an editor stands still
const MOST_BYTES = 4 * MOST_CHARACTERS; // in UTF-8

// Throws when no link could carry it.
export async function toFragment(code) {
  const bytes = new TextEncoder().encode(short(code));
  if (typeof CompressionStream === "undefined") return `#code=0${base64(bytes)}`;
  return `#code=1${base64(await through(bytes, new CompressionStream("deflate-raw")))}`;
}

// The code of a fragment; null when it has none. Throws when it cannot be read.
export async function fromFragment(fragment) {
  const found = /^#code=([01])([\w-]*)$/.exec(fragment);
  if (!found) {
    if (fragment.startsWith("#code=")) throw new Error("the link is incomplete or was changed");
    return null;
  }
  const [, packed, text] = found;
  const bytes = unbase64(text);
  const plain = packed === "1" ? await through(bytes, new DecompressionStream("deflate-raw")) : bytes;
  return short(new TextDecoder("utf-8", { fatal: true }).decode(plain));
}

function short(code) {
  if (code.length > MOST_CHARACTERS) throw tooLong();
  if (code.split("\n").length > MOST_LINES) throw new Error(`the code has more than ${shown(MOST_LINES)} lines`);
  return code;
}

function tooLong() {
  return new Error(`the code is longer than ${shown(MOST_CHARACTERS)} characters`);
}

function shown(count) {
  return count.toLocaleString("en");
}

// A small link can unfold to a large text: reading stops at the limit.
async function through(bytes, stream) {
  const reader = new Blob([bytes]).stream().pipeThrough(stream).getReader();
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > MOST_BYTES) {
      await reader.cancel();
      throw tooLong();
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

function base64(bytes) {
  const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function unbase64(text) {
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
}
