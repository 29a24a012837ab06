// The visitor's own program, as it was left: in this browser's storage, for this site.
// Whatever lies there is read with care; it may be another version's, or anybody's.

const KEY = "rlxweb-playground";
const MOST_CHARACTERS = 200_000;

// {example, code}, or null.
export function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY));
    return isText(kept?.code) ? { example: String(kept.example), code: kept.code } : null;
  } catch {
    return null; // storage is blocked, or what is there is no JSON
  }
}

export function remember(program) {
  try {
    localStorage.setItem(KEY, JSON.stringify(program));
  } catch {
    // storage is blocked or full: the code lives as long as the page
  }
}

export function forget() {
  try {
    localStorage.removeItem(KEY);
  } catch {
    // as above
  }
}

function isText(code) {
  return typeof code === "string" && code.length <= MOST_CHARACTERS;
}
