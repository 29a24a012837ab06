// Running sums or products along one axis: one invocation per line, carried through
// access 2.
//
// A line starts at nothing, or from its carry when the axis was cut or when `fresh` is 0
// (the carry then holds all that is before the line).
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let inner = item % u.inner;
  let chunk = (item / u.inner) % u.chunk;
  let outer = item / u.inner / u.chunk;
  let line = outer * u.x_outer + chunk * u.x_chunk + inner;
  let kept = outer * u.c_outer + chunk * u.c_chunk + inner;
  var run = E(KIND);  // 0 for a sum, 1 for a product
  if (u.at_n != 0u || u.fresh == 0u) { run = ld2(kept); }
  for (var j = 0u; j < u.n; j += 1u) {
    let at = line + j * u.x_n;
    let next = combined(run, ld0(at));
    st1(at, select(next, run, u.exclusive == 1u));
    run = next;
  }
  st2(kept, run);
}
