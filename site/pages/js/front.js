// The live demo of the front page: loaded when its button is pressed, never before.
const live = document.querySelector(".rlx-live");
const button = live.querySelector("button");

function start() {
  const frame = document.createElement("iframe");
  frame.src = live.dataset.demo;
  frame.title = "Live spectrum";
  frame.allow = "microphone";
  live.querySelector(".rlx-poster").replaceChildren(frame);
  live.classList.add("rlx-running");
  button.remove();
  frame.focus();
}

// Without this script the link beside it does the same.
button.hidden = false;
button.addEventListener("click", start);
