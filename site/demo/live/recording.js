// A recording of the visitor's as a source: played through in real time, read in the
// Worker window by window, never sent anywhere.

import { printable } from "../printable.js";
import { EEG_BANDS } from "./synthetic.js";

export const LIMIT = 2 ** 30;
const MOST_UNIT = 16; // characters

// Open a File in Python. Gives {needsRate} where the rate must be told first.
// Throws an Error whose message says what is wrong with the file.
export async function openRecording(rlx, file, { fs = null, layout = null }) {
  if (file.size > LIMIT) {
    throw new Error(
      `${printable(file.name)} has ${inBytes(file.size)}; this page takes recordings up to ${inBytes(LIMIT)}. ` +
        "Nothing of it was read. Cut it into parts, or run “rlxweb welch” on a desktop, which takes files of any size.",
    );
  }
  if (file.size === 0) throw new Error(`${printable(file.name)} is empty (0 bytes), or it is a folder.`);
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

class Recording {
  constructor(name, path, { format, groups, left_out: leftOut, warnings }) {
    this.title = printable(name);
    this.path = path;
    this.format = format;
    this.groups = groups;
    this.leftOut = leftOut.map(([channel, why]) => [printable(channel), why]);
    this.warnings = warnings;
    this.bands = /^[EB]DF/.test(format) ? EEG_BANDS : null;
    this.choose(0);
  }

  // Channels of one rate are a group; one group is shown at a time.
  choose(index) {
    this.group = index;
    const group = this.groups[index];
    this.fs = group.fs;
    this.samples = group.samples;
    this.channels = group.channels.map((channel) => printable(channel));
    this.unit = printable(group.unit, MOST_UNIT).replace(/^u(?=V$)/, "µ");
    this.at = 0; // seconds at which the window begins
  }

  get seconds() {
    return this.samples / this.fs;
  }

  // At the end it begins again.
  advance(seconds) {
    this.at = (this.at + seconds) % this.seconds;
  }

  gather(count, rows) {
    if (count > this.samples) {
      return {
        wait: `The recording has ${this.samples} samples; this spectrum needs ${count}. Choose a smaller n_fft or fewer segments.`,
      };
    }
    const start = Math.min(Math.round(this.at * this.fs), this.samples - count);
    return { args: { start, count, group: this.group, channels: rows } };
  }

  stop() {}
}
