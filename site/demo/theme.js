// Light or dark, before the first paint: a classic script, loaded in the head.
// The choice made by the button of theme-button.js is remembered; without one the system's holds.
(() => {
  let chosen = "";
  try {
    chosen = localStorage.getItem("rlxweb-theme") ?? "";
  } catch {
    // storage is blocked: the system's choice it is
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
