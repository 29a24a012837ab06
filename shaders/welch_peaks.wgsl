// The k strongest bins of every row as (bin, power) pairs, strongest first, ties to the
// smaller bin. The sorted list lives in the output, so that bins may come in pieces.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = item_of(wid, nwg, lid);
  if (row >= u.items) { return; }
  let list = row * 2u * u.k;
  let last = list + 2u * (u.k - 1u);
  if (u.at_bins == 0u) {
    for (var j = list; j <= last; j += 2u) {
      st1(j, 0.0);
      st1(j + 1u, -3.4028234e38);
    }
  }
  var least = ld1(last + 1u);
  for (var i = 0u; i < u.bins; i++) {
    let p = ld0(row * u.pitch + i);
    if (p > least) {
      var j = last;
      while (j > list) {
        let above = ld1(j - 1u);
        if (above >= p) { break; }
        st1(j, ld1(j - 2u));
        st1(j + 1u, above);
        j -= 2u;
      }
      st1(j, f32(u.at_bins + i));
      st1(j + 1u, p);
      least = ld1(last + 1u);
    }
  }
}
