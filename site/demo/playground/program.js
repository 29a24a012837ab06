// The program on the screen: which it is, where it came from, and whether it may be run.
//
// A program of an example or of the visitor is kept from visit to visit. One that came with
// a link is a stranger's: it is shown and says so, it replaces what is kept only when it is
// edited or run, and for a moment after it appeared no press counts, since that press was
// meant for what was there before.
import { hiding, printableLines } from "../printable.js";
import { EXAMPLES, sources } from "./examples.js";
import { forget, remember, remembered } from "./kept.js";
import { fromFragment } from "./share.js";

const UNREAD_MS = 500;
const FIRST = EXAMPLES[0].id;
const ORIGINS = {
  example: "",
  own: "",
  link: "This program came with the link. Whoever made the link wrote it.",
};

export class Program {
  // editor, page   as in playground.js
  // onShown()      after another program appeared, or the one there became readable
  constructor({ editor, page, list, origin, onShown }) {
    Object.assign(this, { editor, page, list, origin, onShown });
    this.example = FIRST;
    this.texts = new Map();
    this.from = "example";
    this.readable = true;
    this.guarded = false; // what is kept is not to be replaced
    this.wish = 0; // the newest link; an older one that unfolds later is let go
    for (const { id, title } of EXAMPLES) list.add(new Option(title, id));
    addEventListener("focus", () => this.from === "link" && this.unread());
  }

  get code() {
    return this.editor.code;
  }

  get untouched() {
    return this.texts.get(this.example) ?? "";
  }

  // From the link, else as it was left, else the first example.
  async open() {
    this.texts = await sources();
    const kept = remembered();
    if (kept) this.show(kept.example, kept.code, "own");
    else this.show(FIRST, this.texts.get(FIRST), "example");
    await this.takeLink();
  }

  // --- what is shown --------------------------------------------------------------------

  show(id, code, from) {
    this.example = this.texts.has(id) ? id : FIRST;
    this.list.value = this.example;
    this.editor.load(code);
    this.cameFrom(from);
    clearTimeout(this.unreadTimer);
    this.readable = true;
    // After a link examples may be looked at too, and what is kept stays.
    if (from !== "example") this.guarded = from === "link";
    if (from === "link") this.unread();
    else if (!this.guarded) this.keep();
    this.onShown();
  }

  cameFrom(from) {
    this.from = from;
    this.origin.textContent = ORIGINS[from];
    this.origin.hidden = !ORIGINS[from];
  }

  // An example of the list, in place of what is there.
  choose(id) {
    const { code, example, from } = this;
    const edited = code !== this.untouched;
    this.page.settled("link");
    this.page.settled("replaced");
    this.show(id, this.texts.get(id), "example");
    if (!edited) return;
    this.page.problem({
      key: "replaced",
      mild: true,
      title: from === "link" ? "The program of the link was replaced" : "Your changes were replaced",
      text: "The example is in the editor now.",
      actions: [this.wayBack(example, code, from)],
    });
  }

  wayBack(example, code, from) {
    return {
      label: "Restore the previous code",
      run: (away) => {
        away();
        this.show(example, code, from);
        this.editor.area.focus();
      },
    };
  }

  // --- links ----------------------------------------------------------------------------

  async takeLink() {
    const wish = ++this.wish;
    try {
      const code = await fromFragment(location.hash);
      if (code === null || wish !== this.wish) return;
      this.showLink(printableLines(code.replace(/\r\n?/g, "\n")));
    } catch (error) {
      if (wish !== this.wish) return;
      this.page.problem({
        key: "link",
        title: "The code in the link cannot be read",
        text: `${error.message || "it is damaged"}. Ask for the link again; your code is unchanged.`,
      });
    }
  }

  showLink(linked) {
    const { code, example, from } = this;
    if (linked === code && from !== "link") return; // one's own link
    this.show(example, linked, "link");
    this.page.settled("replaced");
    this.page.problem({
      key: "link",
      mild: true,
      title: "This code came with the link",
      text: "Read it before you press Run. Your own code is saved until you change or run this code.",
      actions: from === "own" ? [this.wayBack(example, code, from)] : [],
    });
  }

  // For a moment no press counts.
  unread() {
    clearTimeout(this.unreadTimer);
    this.readable = false;
    this.unreadTimer = setTimeout(() => {
      this.readable = true;
      this.onShown();
    }, UNREAD_MS);
    this.onShown();
  }

  // --- edits and runs -------------------------------------------------------------------

  // The visitor changed it: from now on it is theirs.
  edited() {
    this.cameFrom("own");
    this.keep();
  }

  keep() {
    this.guarded = false;
    const { example, code } = this;
    if (example === FIRST && code === this.untouched) forget();
    else remember({ example, code });
  }

  // The text on the screen, for a press that is made now; null where it must not be run.
  pressed() {
    if (!this.texts.size) return null; // nothing is on the screen yet
    if (!this.readable) {
      this.page.say("The program changed a moment ago. Read it, then press Run");
      return null;
    }
    const found = hiding(this.code);
    if (found) {
      this.refuse(found);
      return null;
    }
    this.page.settled("hiding");
    this.keep();
    return this.code;
  }

  refuse({ code, line }) {
    this.page.problem({
      key: "hiding",
      title: "This program contains hidden characters",
      text: `Line ${line} has the character ${code}, which hides text or changes its order. It was not run.`,
      actions: [{
        label: "Replace these characters by escapes",
        run: (away) => {
          away();
          this.show(this.example, printableLines(this.code), this.from);
        },
      }],
    });
  }
}
