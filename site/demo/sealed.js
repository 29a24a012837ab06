// A Worker for programs of strangers: without ways to other hosts, without places where
// one program could leave something for the next, and with one way to its page, which is
// worker.js's own and has an end.
//
// Second to the policy of the page (CSP), which holds also where this list has a hole. It
// is done before the first line of a program and cannot be undone: nothing is kept.
const NETWORK = [
  "EventSource", "FontFace", "WebSocket", "WebSocketStream", "WebTransport", "XMLHttpRequest",
  "fetch", "fetchLater", "fonts", "importScripts",
];
const WORKERS = ["SharedWorker", "Worker"]; // in which all of it would be there again
const KEPT = [
  "BroadcastChannel", "Notification", "PushManager", "caches", "cookieStore", "indexedDB",
  "webkitRequestFileSystem", "webkitRequestFileSystemSync", "webkitResolveLocalFileSystemSyncURL",
  "webkitResolveLocalFileSystemURL",
];
const OF_THE_PAGE = ["close", "postMessage"]; // it would wait for the end of a run that has none
const MOST_MESSAGES = 100_000; // a page that has more of them waiting dies
const MOST_CHARACTERS = 50_000_000;
const OF_NAVIGATOR = ["hid", "locks", "permissions", "sendBeacon", "serial", "serviceWorker", "storage", "storageBuckets", "usb"];

export function seal() {
  for (const name of [...NETWORK, ...WORKERS, ...KEPT, ...OF_THE_PAGE]) take(globalThis, name);
  for (const name of OF_NAVIGATOR) take(navigator, name);
}

function take(from, name) {
  for (let owner = from; owner; owner = Object.getPrototypeOf(owner)) delete owner[name];
  if (name in from) throw new Error(`this Worker can still use ${name}, so it runs no program`);
}

// `post(text, arrays)` as often and as much as a page can bear.
export function limited(post) {
  let [messages, characters] = [MOST_MESSAGES, MOST_CHARACTERS];
  return (text, arrays) => {
    messages -= 1;
    characters -= text.length;
    if (messages < 0 || characters < 0) throw new Error("this run sent more output than the page accepts");
    return post(text, arrays);
  };
}
