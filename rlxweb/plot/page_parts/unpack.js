// What Python packed: numbers, deflated, as text.
export async function unpacked(text, Numbers) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Numbers(await new Response(stream).arrayBuffer());
}
