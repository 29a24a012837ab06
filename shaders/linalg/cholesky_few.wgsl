// cholesky.wgsl for matrices of few rows: an invocation for each, no barriers.
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
    st0(corner, root);
    for (var i = at + 1u; i < u.n; i++) {
      let line = base + i * u.n;
      let factor = ld0(line + at) / root;
      st0(line + at, factor);
      for (var j = at + 1u; j <= i; j++) {
        st0(line + j, fma(-factor, ld0(base + j * u.n + at), ld0(line + j)));
      }
    }
  }
  st1(item, good);
}
