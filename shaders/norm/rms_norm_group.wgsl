// rms_norm.wgsl with a workgroup for every line.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let line = item / u.inner * u.outer_step + item % u.inner;
  var sum = 0.0;
  for (var i = lid; i < u.n; i += WG) {
    let v = ld0(line + i * u.step);
    sum += v * v;
  }
  let scale = 1.0 / sqrt(group_sum(lid, sum) / f32(u.n) + u.eps);
  for (var i = lid; i < u.n; i += WG) {
    let at = line + i * u.step;
    st3(at, ld0(at) * scale * ld1(i) + ld2(i));
  }
}
