// An element with attributes and children: make("p", {class: "note"}, ["text", node]).
export function make(name, attributes = {}, children = []) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
