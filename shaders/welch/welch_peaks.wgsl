// The k strongest bins of every row as (bin, power) pairs, strongest first, ties to the
// smaller bin, NaN behind every number. The sorted list lives in the output, so that bins
// may come in pieces.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = item_of(wid, nwg, lid);
  if (row >= u.items) { return; }
  let list = row * 2u * u.k;
  var filled = min(u.k, u.at_bins);
  for (var i = 0u; i < u.bins; i++) {
    let p = ld0(row * u.pitch + i);
    var free = filled;
    if (filled == u.k) {
      free = u.k - 1u;
      if (!beats(p, ld1(list + 2u * free + 1u))) { continue; }
    } else {
      filled += 1u;
    }
    while (free > 0u) {
      let at = list + 2u * free;
      let above = ld1(at - 1u);
      if (!beats(p, above)) { break; }
      st1(at, ld1(at - 2u));
      st1(at + 1u, above);
      free -= 1u;
    }
    st1(list + 2u * free, f32(u.at_bins + i));
    st1(list + 2u * free + 1u, p);
  }
}
