// Cholesky's factors in place, a workgroup for every matrix [n, n], of which the lower
// half is read. Accesses 0 the matrices, 1 whether they are positive definite: 0 when a
// root was of no positive number. Pieces go on where the one before ended.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let base = item * u.n * u.n;
  var good = 1.0;
  if (u.at_column != 0u) { good = ld1(item); }
  for (var c = 0u; c < u.column; c++) {
    let at = u.at_column + c;
    let corner = base + at * u.n + at;
    let v = ld0(corner);
    let bad = v <= 0.0 || is_nan(v);
    good = select(good, 0.0, bad);
    let root = sqrt(select(v, 1.0, bad));
    storageBarrier();
    workgroupBarrier();
    if (lid == 0u) { st0(corner, root); }
    for (var i = at + 1u + lid; i < u.n; i += WG) {
      let here = base + i * u.n + at;
      st0(here, ld0(here) / root);
    }
    storageBarrier();
    workgroupBarrier();
    let left = u.n - at - 1u;
    for (var e = lid; e < left * left; e += WG) {
      let i = at + 1u + e / left;
      let j = at + 1u + e % left;
      if (j <= i) {
        let line = base + i * u.n;
        st0(line + j, fma(-ld0(line + at), ld0(base + j * u.n + at), ld0(line + j)));
      }
    }
    storageBarrier();
    workgroupBarrier();
  }
  if (lid == 0u) { st1(item, good); }
}
