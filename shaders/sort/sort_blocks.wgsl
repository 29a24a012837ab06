// Sorts blocks of neighbours of each line: keys (access 2) and the places they come
// from (access 1). An element stands behind as many of its block as go before it, which
// it counts; equal keys stay in order.
fn sorted_by(v: E) -> u32 {
  return (key_of(v) ^ u.flipped) + u.shifted;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let j = item % u.n;
  let inner = item / u.n % u.inner;
  let outer = item / u.n / u.inner;
  let line = outer * u.x_outer + inner;
  let start = j / u.block * u.block;
  let mine = sorted_by(ld0(line + j * u.x_n));
  var to = start;
  for (var at = start; at < j; at++) {
    to += u32(sorted_by(ld0(line + at * u.x_n)) <= mine);
  }
  for (var at = j + 1u; at < min(start + u.block, u.n); at++) {
    to += u32(sorted_by(ld0(line + at * u.x_n)) < mine);
  }
  if (u.last == 0u) {
    st2(outer * u.z_outer + inner * u.z_inner + to, mine);
  } else if (to >= u.keep) {
    return;
  }
  st1(outer * u.y_outer + inner * u.y_inner + to * u.y_n, i32(u.at_n + j));
}
