"""The entry point of generated shaders, whoever writes the rest of them."""

from __future__ import annotations

MAIN_LINES = (
    "@compute @workgroup_size(WG)",
    "fn main(@builtin(workgroup_id) wid: vec3<u32>,",
    "        @builtin(num_workgroups) nwg: vec3<u32>,",
    "        @builtin(local_invocation_index) lid: u32) {",
    "  let item = item_of(wid, nwg, lid);",
    "  if (item >= u.items) { return; }",
)
"""The entry point, up to the number of the item that is this invocation's."""
MAIN_TEXT = "".join(f"{line}\n" for line in MAIN_LINES)
"""The same as one text, with its last line's end."""
