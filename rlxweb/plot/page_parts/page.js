// Puts the pictures of the document onto the page.
import { bands } from "./bands.js";
import { spectra } from "./spectra.js";
import { surface } from "./surface.js";
import { themeButton } from "./demo/theme-button.js";

const { facts, log, panels, colours } = JSON.parse(document.getElementById("document").textContent);
const KINDS = {
  spectra: (panel) => spectra(panel, colours.values, log),
  surface: (panel) => surface(panel, colours[panel.scale], log),
  bands: (panel) => bands(panel, colours.values),
};
document.getElementById("facts").textContent = facts;
document.getElementById("keys").hidden = panels.every((panel) => panel.kind === "bands");
document.getElementById("theme").append(themeButton());
const made = [];
const repaint = () => made.forEach((one) => one.paint());
addEventListener("rlxweb-theme", repaint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
// Paper is white.
let before;
addEventListener("beforeprint", () => {
  before = document.documentElement.dataset.theme;
  document.documentElement.dataset.theme = "light";
  repaint();
});
addEventListener("afterprint", () => {
  if (before) document.documentElement.dataset.theme = before;
  else delete document.documentElement.dataset.theme;
  repaint();
});
Promise.all(panels.map((panel) => KINDS[panel.kind](panel))).then((all) => {
  made.push(...all);
  document.getElementById("panels").append(...all.map((one) => one.element));
  document.documentElement.dataset.ready = "yes";
});
