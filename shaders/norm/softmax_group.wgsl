// softmax.wgsl with a workgroup for every line.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let line = item / u.inner * u.outer_step + item % u.inner;
  var top = -3.4028234e38;
  for (var i = lid; i < u.n; i += WG) { top = max(top, ld0(line + i * u.step)); }
  top = group_max(lid, top);
  var total = 0.0;
  for (var i = lid; i < u.n; i += WG) { total += weight(ld0(line + i * u.step) - top); }
  let scale = 1.0 / group_sum(lid, total);
  for (var i = lid; i < u.n; i += WG) {
    let at = line + i * u.step;
    st1(at, weight(ld0(at) - top) * scale);
  }
}

// exp of -104 is 0 in f32; anything lower might overflow inside a driver's exp.
fn weight(v: f32) -> f32 {
  return keeps_nan(v, exp(max(v, -104.0)));
}
