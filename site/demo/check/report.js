// The report: everything a run found, as one JSON document.

export const SCHEMA = "rlxweb.check/1";

export function report(run, facts) {
  const cases = run.cells.filter((cell) => cell.result).map(oneCase);
  return {
    schema: SCHEMA,
    made: run.began.toISOString(),
    seconds: Math.round(run.seconds * 1000) / 1000,
    complete: cases.length === run.cells.length,
    broken_on_purpose: run.spoiling,
    compared: run.device === "cpu" ? "NumPy float32 against float64" : "WebGPU against NumPy in float64",
    versions: facts.versions,
    user_agent: navigator.userAgent,
    blocking_calls_wait: facts.jspi,
    device: run.row,
    summary: { total: run.cells.length, run: cases.length, ...run.tally },
    cases,
  };
}

function oneCase({ op, at, sample, result }) {
  return {
    op: op.name,
    sample: at,
    inputs: sample.inputs.map(([shape, dtype]) => ({ shape, dtype })),
    attrs: sample.attrs,
    note: sample.note,
    tolerance: op.tolerance,
    ...result,
  };
}

export function fileName(run) {
  const engine = run.row.engine.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");
  return `rlxweb-check-${engine}-${run.began.toISOString().slice(0, 10)}.json`;
}
