// Runs on the audio thread: hands the page the samples it hears, 512 at a time.

class Samples extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Float32Array(512);
    this.filled = 0;
  }

  process([[heard]]) {
    if (!heard) return true;
    for (const sample of heard) {
      this.block[this.filled++] = sample;
      if (this.filled === this.block.length) {
        this.port.postMessage(this.block, [this.block.buffer]);
        this.block = new Float32Array(512);
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("samples", Samples);
