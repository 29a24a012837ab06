// Sounds as samples of one channel: of a file, of the microphone. Nothing leaves the tab.
import { openMicrophone } from "../live/microphone.js";

const FS = 22050; // the model's
export const MOST_SECONDS = 1200;
export const MOST_RECORDED = 60;

// {samples, fs, cut}: cut is the length of the whole file in s, where it was longer.
export async function ofFile(file) {
  const raw = await file.arrayBuffer();
  let sound;
  try {
    sound = await new OfflineAudioContext(1, 1, FS).decodeAudioData(raw);
  } catch (error) {
    throw new Error("This browser cannot decode the file as sound. Most browsers can decode WAV, MP3, FLAC and Ogg.", { cause: error });
  }
  const count = Math.min(sound.length, MOST_SECONDS * FS);
  const samples = new Float32Array(count);
  for (let c = 0; c < sound.numberOfChannels; c++) {
    const own = sound.getChannelData(c);
    for (let n = 0; n < count; n++) samples[n] += own[n] / sound.numberOfChannels;
  }
  return { samples, fs: FS, cut: sound.length > count ? sound.duration : 0 };
}

// What the microphone hears from now on; `onSeconds` is told how much, `onFull` when it ends.
export async function record({ onSeconds, onFull }) {
  const blocks = [];
  let held = 0;
  const mic = await openMicrophone({ onEnded: onFull });
  mic.node.port.onmessage = ({ data }) => {
    blocks.push(data);
    held += data.length;
    onSeconds(held / mic.fs);
    if (held >= MOST_RECORDED * mic.fs) onFull();
  };
  return async () => {
    await mic.stop();
    const samples = new Float32Array(held);
    let at = 0;
    for (const block of blocks) {
      samples.set(block, at);
      at += block.length;
    }
    return { samples, fs: mic.fs, cut: 0 };
  };
}
