"""How a generated shader begins, whoever writes the rest of it."""

MAIN = (
    "@compute @workgroup_size(WG)",
    "fn main(@builtin(workgroup_id) wid: vec3<u32>,",
    "        @builtin(num_workgroups) nwg: vec3<u32>,",
    "        @builtin(local_invocation_index) lid: u32) {",
    "  let item = item_of(wid, nwg, lid);",
    "  if (item >= u.items) { return; }",
)
"""The entry point, up to the number of the item that is this invocation's."""

TEXT = """@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) wid: vec3<u32>,
  @builtin(num_workgroups) nwg: vec3<u32>,
  @builtin(local_invocation_index) lid: u32,
) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
"""
"""The same as one text."""
