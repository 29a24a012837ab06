// The microphone as a source of samples. What it hears stays in this tab.
import { Ring } from "./ring.js";

const SECONDS = 20; // of sound that are kept, at most

// Ask for the microphone. Throws an Error whose message says what to do.
export async function openMicrophone({ onEnded }) {
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new Error("This page may not use a microphone: browsers allow it on https:// and localhost only.");
  }
  const raw = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  let stream = null;
  let context = null;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1, ...raw } });
    context = new AudioContext();
    await context.audioWorklet.addModule(new URL("mic-worklet.js", import.meta.url));
    return new Microphone(stream, context, onEnded);
  } catch (error) {
    for (const track of stream?.getTracks() ?? []) track.stop();
    await context?.close();
    throw new Error(inWords(error), { cause: error });
  }
}

function inWords(error) {
  switch (error.name) {
    case "NotAllowedError":
    case "SecurityError":
      return "The use of the microphone was not allowed. Allow it next to the address of this page, then choose it again.";
    case "NotFoundError":
      return "No microphone was found. Connect one and choose it again.";
    case "NotReadableError":
    case "AbortError":
      return "The microphone cannot be read. Another program may be using it.";
    default:
      return `The microphone could not be opened: ${error.message}`;
  }
}

class Microphone {
  constructor(stream, context, onEnded) {
    this.title = "Microphone";
    this.fs = context.sampleRate;
    this.unit = "";
    this.isEeg = false;
    this.channels = ["microphone"];
    this.ring = new Ring(1, Math.ceil(SECONDS * this.fs));
    this.stream = stream;
    this.context = context;
    this.node = new AudioWorkletNode(context, "samples", { numberOfOutputs: 0 });
    this.node.port.onmessage = ({ data }) => this.ring.push([data]);
    context.createMediaStreamSource(stream).connect(this.node);
    for (const track of stream.getTracks()) track.addEventListener("ended", onEnded);
  }

  advance() {}

  gather(count, rows) {
    const samples = this.ring.latest(count, rows);
    return samples ? { samples } : { wait: "Listening: waiting for enough sound for the first spectrum" };
  }

  // Sound that comes while the page rests is not wanted.
  async rest(resting) {
    await (resting ? this.context.suspend() : this.context.resume());
  }

  stop() {
    for (const track of this.stream.getTracks()) track.stop();
    this.node.port.onmessage = null;
    return this.context.close();
  }
}
