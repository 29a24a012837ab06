// A JSON document as a file for the visitor.
export function download(document_, name) {
  const text = JSON.stringify(document_, null, 1);
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
