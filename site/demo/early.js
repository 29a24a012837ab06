// Python begins to load before the page around it is built: see worker.js, which does
// that unasked. For pages that start Python as soon as they are there; inside another page
// they may refuse to.
import { openEarly } from "./policy.js";

if (window.top === window) openEarly(new URL("worker.js", import.meta.url));
