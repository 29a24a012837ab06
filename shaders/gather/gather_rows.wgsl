// gather.wgsl, four neighbours of a row at a time. `inner` counts single elements.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let across = u.inner / 4u;
  let inner = item % across;
  let index = (item / across) % u.index;
  let outer = item / across / u.index;
  let given = ld1(index);
  let row = u32(given) + select(0u, u.rows, given < 0);
  let line = outer * u.x_outer / 4u + inner;
  let place = (outer * u.y_outer + index * u.y_index) / 4u + inner;
  if (row >= u.rows) {
    if (u.at_t == 0u) {
      fault(1u + u.at_index + index);
      st2(place, ld0(line));
    }
    return;
  }
  let local = row - u.at_t;
  if (row >= u.at_t && local < u.t) { st2(place, ld0(line + local * (u.x_t / 4u))); }
}
