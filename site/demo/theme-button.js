// The button that makes a page light or dark; what theme.js reads is written here.
import { make } from "./make.js";

export function themeButton() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const button = make("button", { type: "button", class: "button small quiet" });
  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const show = () => {
    button.textContent = isDark() ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
    dispatchEvent(new Event("rlxweb-theme"));
  };
  button.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("rlxweb-theme", next);
    } catch {
      // storage is blocked: the choice holds until the page is left
    }
    show();
  });
  dark.addEventListener("change", show);
  show();
  return button;
}
