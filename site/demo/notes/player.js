// Plays notes, so that they can be compared with the sound they were heard in.

export class Player {
  // onAt(s, or null when it is over)
  constructor(onAt) {
    this.onAt = onAt;
    this.context = null;
  }

  get isPlaying() {
    return this.context !== null;
  }

  play({ start, end, pitch, amplitude, seconds }) {
    const context = new AudioContext();
    this.context = context;
    const out = new DynamicsCompressorNode(context);
    out.connect(context.destination);
    const begun = context.currentTime + 0.05;
    for (let n = 0; n < pitch.length; n++) sound(context, out, begun + start[n], begun + end[n], pitch[n], amplitude[n]);
    const tick = () => {
      if (this.context !== context) return;
      const now = context.currentTime - begun;
      if (now > seconds) return this.stop();
      this.onAt(Math.max(0, now));
      requestAnimationFrame(tick);
    };
    tick();
  }

  stop() {
    this.context?.close();
    this.context = null;
    this.onAt(null);
  }
}

function sound(context, out, from, to, key, loud) {
  const voice = new OscillatorNode(context, { type: "triangle", frequency: 440 * 2 ** ((key - 69) / 12) });
  const gain = new GainNode(context, { gain: 0 });
  gain.gain.setValueAtTime(0, from);
  gain.gain.linearRampToValueAtTime(0.3 * loud, from + 0.01);
  gain.gain.setTargetAtTime(0, to - 0.02, 0.03);
  voice.connect(gain).connect(out);
  voice.start(from);
  voice.stop(to + 0.2);
}
