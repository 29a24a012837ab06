// One choice of light or dark for the manual and the demos: Material keeps its own, the
// demos read "rlxweb-theme". A choice made on either side holds on the other.
const KEY = "rlxweb-theme";

function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage is blocked: each page follows the system
  }
}

function keep(theme) {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // the choice holds until the page is left
  }
}

const theme = () => (document.body.dataset.mdColorScheme === "slate" ? "dark" : "light");

const chosen = kept();
if (chosen && chosen !== theme()) {
  const scheme = chosen === "dark" ? "slate" : "default";
  document.querySelector(`input[name="__palette"][data-md-color-scheme="${scheme}"]`)?.click();
}

for (const input of document.querySelectorAll('input[name="__palette"]')) {
  input.addEventListener("change", () => {
    keep(input.dataset.mdColorScheme === "slate" ? "dark" : "light");
  });
}
