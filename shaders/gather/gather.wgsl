// Elements of a table by index along its `t` axis.
//
// A piece holds some of the table's rows and writes the outputs whose index falls among
// them, so every output is written once however the table is cut. A negative index
// counts from the end. One outside the table is a fault, reported (and given a defined element) by the first piece.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let inner = item % u.inner;
  let index = (item / u.inner) % u.index;
  let outer = item / u.inner / u.index;
  let given = ld1(index);
  let row = u32(given) + select(0u, u.rows, given < 0);
  let line = outer * u.x_outer + inner;
  let place = outer * u.y_outer + index * u.y_index + inner;
  if (row >= u.rows) {
    if (u.at_t == 0u) {
      fault(1u + u.at_index + index);
      st2(place, ld0(line));
    }
    return;
  }
  let local = row - u.at_t;
  if (row >= u.at_t && local < u.t) { st2(place, ld0(line + local * u.x_t)); }
}
