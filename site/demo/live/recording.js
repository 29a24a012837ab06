// A recording of the visitor's as a source: played through in real time, read in the
// Worker window by window, never sent anywhere.

import { printable } from "../printable.js";

export const LIMIT = 2 ** 30;
const MOST_UNIT = 16; // characters

// Open a File in Python. Gives {needsRate} where the rate must be told first.
// Throws an Error whose message says what is wrong with the file.
export async function openRecording(rlx, file, { fs = null, layout = null }) {
  if (file.size > LIMIT) {
    throw new Error(
      `${printable(file.name)} has ${inBytes(file.size)}; this page takes recordings up to ${inBytes(LIMIT)}. ` +
        "The file was not read. Split it, or run “rlxweb welch” on a desktop, which supports files of any size.",
    );
  }
  if (file.size === 0) throw new Error(`${printable(file.name)} is an empty file (0 bytes) or a folder.`);
  const path = await rlx.mount(file);
  try {
    const { result } = await rlx.call("open_path", { path, fs, layout });
    if (!result.needs_rate) return new Recording(file.name, path, result);
    await rlx.unmount(path);
    return { needsRate: result.needs_rate };
  } catch (error) {
    await rlx.unmount(path);
    throw error;
  }
}

export function inBytes(count) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  const at = count < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(count) / 10));
  const value = count / 1024 ** at;
  return `${at && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

// "0:12", "1:02:03"; with tenths of a second where they are asked for.
export function clockOf(seconds, tenths = false) {
  const whole = tenths ? Math.floor(10 * seconds + 0.5) / 10 : Math.floor(seconds);
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60);
  const rest = `${hours ? two(minutes % 60) : minutes}:${two(whole % 60)}${tenths ? `.${Math.round(10 * whole) % 10}` : ""}`;
  return hours ? `${hours}:${rest}` : rest;
}

class Recording {
  constructor(name, path, { format, groups, left_out: leftOut, warnings, begun }) {
    this.title = printable(name);
    this.path = path;
    this.format = format;
    this.groups = groups;
    this.leftOut = leftOut.map(([channel, why]) => [printable(channel), why]);
    this.warnings = warnings;
    this.begun = begun; // seconds of the day, or null
    this.isEeg = /^[EB]DF/.test(format);
    this.choose(0);
  }

  // Channels of one rate are a group; one group is shown at a time.
  choose(index) {
    this.group = index;
    const group = this.groups[index];
    this.fs = group.fs;
    this.samples = group.samples;
    this.channels = group.channels.map((channel) => printable(channel));
    this.units = group.units.map((unit) => printable(unit, MOST_UNIT).replace(/^u(?=V$)/, "µ"));
    this.gaps = group.gaps; // samples [from, to) that were never recorded
    this.from = 0; // what is played, in seconds
    this.to = this.seconds;
    this.at = 0; // seconds at which the window begins
    this.window = [0, 0];
  }

  get seconds() {
    return this.samples / this.fs;
  }

  // Samples that follow each other without a gap: so many there are at most.
  get longest() {
    const begins = [0, ...this.gaps.map(([, to]) => to)];
    const ends = [...this.gaps.map(([from]) => from), this.samples];
    return Math.max(...ends.map((end, at) => end - begins[at]));
  }

  // Of these channels; "" where they have several.
  unitOf(rows) {
    const units = new Set(rows.map((row) => this.units[row]));
    return units.size === 1 ? [...units][0] : "";
  }

  // The time of day at a moment, or "".
  timeAt(seconds) {
    return this.begun === null ? "" : clockOf((this.begun + seconds) % 86400 + 86400).replace(/^\d+/, (hours) => String(hours % 24).padStart(2, "0"));
  }

  // Play from one moment up to another.
  stretch(from, to) {
    this.from = from;
    this.to = to;
    this.at = from;
  }

  // At the end of what is played it begins again.
  advance(seconds) {
    this.at += seconds;
    if (this.at >= this.to || this.at < this.from) this.at = this.from;
  }

  gather(count, rows) {
    if (count > this.longest) {
      const whole = this.gaps.length ? " that follow each other without a gap" : "";
      return {
        wait: `The recording has ${this.longest} samples${whole}; this spectrum needs ${count}. Choose a smaller n_fft or fewer segments.`,
      };
    }
    const start = this.whole(Math.round(this.at * this.fs), count);
    this.window = [start / this.fs, (start + count) / this.fs]; // what the spectrum is of
    return { args: { start, count, group: this.group, channels: rows } };
  }

  // The first sample from which so many were recorded without a gap: what is played passes
  // over gaps, and begins anew where there is no more room before the end.
  whole(first, count) {
    let start = Math.min(first, this.samples - count);
    for (const [from, to] of this.gaps) {
      if (start >= to || start + count <= from) continue;
      start = to;
      this.at = start / this.fs;
    }
    if (start + count <= this.samples) return start;
    this.at = 0;
    return this.whole(0, count);
  }

  stop() {}
}
