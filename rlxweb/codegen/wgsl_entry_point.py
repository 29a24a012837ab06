"""Text of the WGSL entry point (`main`) that all generated shaders share."""

from __future__ import annotations

MAIN_LINES = (
    "@compute @workgroup_size(WG)",
    "fn main(@builtin(workgroup_id) wid: vec3<u32>,",
    "        @builtin(num_workgroups) nwg: vec3<u32>,",
    "        @builtin(local_invocation_index) lid: u32) {",
    "  let item = item_of(wid, nwg, lid);",
    "  if (item >= u.items) { return; }",
)
"""Lines of the entry point, up to the number of the invocation's item."""
MAIN_TEXT = "".join(f"{line}\n" for line in MAIN_LINES)
"""Entry point as one text that ends with a newline."""
