// A dense array into the middle of a larger one: [lead, i0, i1, i2] with both strides.
// Accesses 0 the array, 1 the larger one from the first place on.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let i2 = item % u.i2;
  let line = item / u.i2;
  let i1 = line % u.i1;
  let plane = line / u.i1;
  let i0 = plane % u.i0;
  let lead = plane / u.i0;
  let from_x = lead * u.x_lead + i0 * u.x_i0 + i1 * u.x_i1 + i2 * u.x_i2;
  st1(lead * u.y_lead + i0 * u.y_i0 + i1 * u.y_i1 + i2 * u.y_i2, ld0(from_x));
}
