// Numbers and results in words, for squares, details and the summary.

export function shapes(sample) {
  return sample.inputs.map(([shape, dtype]) => `${size(shape)} ${dtype}`).join(", ");
}

export function size(shape) {
  return shape.length ? shape.join("×") : "scalar";
}

export function percent(share) {
  if (share === 0) return "0 %";
  if (!Number.isFinite(share)) return "over";
  if (share >= 10_000) return "over 10,000 ×";
  if (share >= 10) return `${count(Math.round(share))} ×`;
  if (share < 0.001) return "< 0.1 %";
  return share < 0.0995 ? `${(100 * share).toFixed(1)} %` : `${count(Math.round(100 * share))} %`;
}

export function milliseconds(ms) {
  if (ms >= 9950) return `${(ms / 1000).toFixed(0)} s`;
  if (ms >= 995) return `${(ms / 1000).toFixed(1)} s`;
  return ms >= 9.95 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(1)} ms`;
}

// 1.19e-7, 0.25, 131074: three digits where a number is not whole.
export function number(value) {
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return count(value);
  const plain = Math.abs(value) >= 1e-3 && Math.abs(value) < 1e6;
  return plain ? String(Number(value.toPrecision(7))) : value.toExponential(3);
}

export function count(value) {
  return value.toLocaleString("en");
}

export function brief(result) {
  if (!result) return "not run yet";
  if (result.said) return result.said;
  if (result.word === "refused" || result.word === "not run") return result.word;
  if (result.share === undefined) return `${result.word}, ${result.raised || "no result"}`;
  const share = typeof result.share === "number" ? result.share : Infinity;
  const used = Number.isFinite(share) ? `${percent(share)} of the tolerance` : "over the tolerance";
  return `${result.word}, ${used}, ${milliseconds(result.ms)}`;
}

// What a run came to: the sentence of the page.
export function sentence(tally, engine, { done, total, cancelled }) {
  const judged = tally.right + tally.wrong;
  const said = `${count(tally.right)} of ${count(judged)} cases right on ${engine}`;
  if (done === total) return said;
  return cancelled ? `Cancelled: ${said}` : `${said} so far`;
}

export function remainder(tally, { done, total, spoiling }) {
  const parts = [];
  if (tally.refused) {
    parts.push(`${count(tally.refused)} refused because this engine does not support the dtype; it does not compute in another dtype instead`);
  }
  if (done < total) parts.push(`${count(total - done)} not run`);
  if (spoiling) parts.push("“Break it” is on: some results were changed on purpose");
  return parts.length ? `${parts.join(". ")}.` : "";
}
