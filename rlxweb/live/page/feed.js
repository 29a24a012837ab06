// What the program tells: the signal first, then its updates, as long as somebody looks.

export class Feed {
  // about(told), update(told), end(words): what came; lost(forever): nothing comes
  constructor(acts) {
    this.acts = acts;
    this.source = null;
  }

  // Listen to these channels, the first ones where none are named.
  open(rows = null) {
    this.close();
    const source = new EventSource(rows ? `events?rows=${rows.join(",")}` : "events");
    const heard = (act) => ({ data }) => {
      if (source === this.source) act(JSON.parse(data));
    };
    source.addEventListener("about", heard(this.acts.about));
    source.addEventListener("message", heard((told) => this.acts.update(unpacked(told))));
    source.addEventListener("end", heard(({ words }) => {
      this.close();
      this.acts.end(words);
    }));
    source.addEventListener("error", () => {
      if (source === this.source) this.acts.lost(source.readyState === EventSource.CLOSED);
    });
    this.source = source;
  }

  close() {
    this.source?.close();
    this.source = null;
  }
}

// Powers come as float64 in base 64: a number as text would cost both sides more.
function unpacked(told) {
  if (told.power === undefined) return told;
  const bytes = Uint8Array.from(atob(told.power), (character) => character.charCodeAt(0));
  return { ...told, power: new Float64Array(bytes.buffer) };
}
