// The latest samples of some channels, in a ring of fixed length.

export class Ring {
  constructor(channels, capacity) {
    this.channels = channels;
    this.capacity = capacity;
    this.length = 0; // samples held, at most the capacity
    this.at = 0; // where the next sample goes
    this.data = Array.from({ length: channels }, () => new Float32Array(capacity));
  }

  // Append one block per channel, all of one length.
  push(blocks) {
    const count = blocks[0].length;
    const kept = Math.min(count, this.capacity);
    for (let c = 0; c < this.channels; c++) {
      const block = blocks[c].subarray(count - kept);
      const first = Math.min(kept, this.capacity - this.at);
      this.data[c].set(block.subarray(0, first), this.at);
      this.data[c].set(block.subarray(first), 0);
    }
    this.at = (this.at + kept) % this.capacity;
    this.length = Math.min(this.capacity, this.length + kept);
  }

  // The last `count` samples of some channels as one array, row after row; null while
  // there are not so many.
  latest(count, rows) {
    if (count > this.length) return null;
    const out = new Float32Array(rows.length * count);
    const from = (this.at - count + this.capacity) % this.capacity;
    const first = Math.min(count, this.capacity - from);
    rows.forEach((row, index) => {
      const own = this.data[row];
      out.set(own.subarray(from, from + first), index * count);
      out.set(own.subarray(0, count - first), index * count + first);
    });
    return out;
  }
}
