// lu_eliminate.wgsl for matrices of few rows: an invocation for each, no barriers.
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
    if (row != at) {
      sign = -sign;
      for (var j = at; j < u.width; j++) {
        let below = base + row * u.width + j;
        let v = ld0(top + j);
        st0(top + j, ld0(below));
        st0(below, v);
      }
    }
    let found = ld0(top + at);
    if (found == 0.0) { sign = 0.0; }
    let pivot = select(found, 1.0, found == 0.0);
    for (var i = at + 1u; i < u.n; i++) {
      let line = base + i * u.width;
      let factor = ld0(line + at) / pivot;
      for (var j = at + 1u; j < u.width; j++) {
        st0(line + j, fma(-factor, ld0(top + j), ld0(line + j)));
      }
    }
  }
  st1(item, sign);
}
