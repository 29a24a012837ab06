// The k largest of each line as sorted lists of values (access 1) and indices (2).
//
// Candidates come in the order of their indices and a newcomer stands behind its equals,
// so of equal values the smaller index comes first; NaN stands last. `before` entries
// are there already when a walk continues another one.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let chunk = item % u.chunk;
  let row = item / u.chunk;
  let line = row * u.x_row + chunk * u.x_chunk;
  let list = row * u.y_row + chunk * u.y_chunk;
  var filled = min(u.k, u.before + u.at_n);
  for (var j = 0u; j < u.n; j += 1u) {
    let value = ld0(line + j);
    var free = filled;
    if (filled == u.k) {
      if (!beats(value, ld1(list + u.k - 1u))) { continue; }
      free = u.k - 1u;
    } else {
      filled += 1u;
    }
    while (free > 0u) {
      let above = ld1(list + free - 1u);
      if (!beats(value, above)) { break; }
      st1(list + free, above);
      st2(list + free, ld2(list + free - 1u));
      free -= 1u;
    }
    st1(list + free, value);
    st2(list + free, candidate(line + j, row, chunk, j));
  }
}
