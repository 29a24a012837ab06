// The live demo of the front page: loaded when its button is pressed, never before.
const live = document.querySelector(".rlx-live");
const button = live.querySelector("button");

function start() {
  const frame = document.createElement("iframe");
  frame.src = live.dataset.demo;
  frame.title = "Live spectrum";
  frame.allow = "microphone";
  frame.addEventListener("load", () => settle(frame));
  live.querySelector(".rlx-poster").replaceChildren(frame);
  button.remove();
  frame.focus();
}

// Inside this page the demo needs no header of its own, and has this page's colours.
function settle(frame) {
  const inside = frame.contentDocument;
  inside.querySelector(".shell-header")?.remove();
  new MutationObserver(() => {
    const dark = document.body.dataset.mdColorScheme === "slate";
    inside.documentElement.dataset.theme = dark ? "dark" : "light";
    frame.contentWindow.dispatchEvent(new Event("rlxweb-theme"));
  }).observe(document.body, { attributeFilter: ["data-md-color-scheme"] });
}

// Without this script the link beside it does the same.
button.hidden = false;
button.addEventListener("click", start);
