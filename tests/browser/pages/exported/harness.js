// What the tests of exported plans call: the module, and answers that can be told.
import { load, RlxError } from "/peaks/peaks.js";
const told = async (work) => {
  try {
    return { value: await work() };
  } catch (error) {
    return { name: error.name, code: error.code, message: error.message, ours: error instanceof RlxError };
  }
};
const plain = (found) => Object.fromEntries(Object.entries(found).map(([name, array]) => [name, [array.constructor.name, ...array]]));
const evaluated = (() => {
  try {
    return eval("'evaluated'");
  } catch (error) {
    return error.name;
  }
})();
Object.assign(globalThis, { load, RlxError, told, plain, evaluated });
document.documentElement.dataset.ready = "yes";
