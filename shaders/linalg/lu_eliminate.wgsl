// Gaussian elimination with partial pivoting, a workgroup for every matrix [n, width].
// Accesses 0 the matrices, 1 their signs: -1 after an odd number of exchanges, 0 when a
// pivot was 0. Pieces go on where the one before ended; what is left of the diagonal is
// not used again and holds the factors. Every lane looks for the pivot by itself: all
// read the same, and need no memory in common.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let base = item * u.n * u.width;
  var sign = 1.0;
  if (u.at_column != 0u) { sign = ld1(item); }
  for (var c = 0u; c < u.column; c++) {
    let at = u.at_column + c;
    let top = base + at * u.width;
    var most = abs(ld0(top + at));
    var row = at;
    for (var i = at + 1u; i < u.n; i++) {
      let v = abs(ld0(base + i * u.width + at));
      if (v > most) {
        most = v;
        row = i;
      }
    }
    storageBarrier();
    workgroupBarrier();
    if (row != at) {
      sign = -sign;
      for (var j = at + lid; j < u.width; j += WG) {
        let above = top + j;
        let below = base + row * u.width + j;
        let v = ld0(above);
        st0(above, ld0(below));
        st0(below, v);
      }
    }
    storageBarrier();
    workgroupBarrier();
    let found = ld0(top + at);
    if (found == 0.0) { sign = 0.0; }
    let pivot = select(found, 1.0, found == 0.0);
    for (var i = at + 1u + lid; i < u.n; i += WG) {
      let here = base + i * u.width + at;
      st0(here, ld0(here) / pivot);
    }
    storageBarrier();
    workgroupBarrier();
    let right = u.width - at - 1u;
    let cells = (u.n - at - 1u) * right;
    for (var e = lid; e < cells; e += WG) {
      let line = base + (at + 1u + e / right) * u.width;
      let j = at + 1u + e % right;
      st0(line + j, fma(-ld0(line + at), ld0(top + j), ld0(line + j)));
    }
    storageBarrier();
    workgroupBarrier();
  }
  if (lid == 0u) { st1(item, sign); }
}
