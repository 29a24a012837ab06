// layer_norm.wgsl with a workgroup for every line.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let line = item / u.inner * u.outer_step + item % u.inner;
  let first = ld0(line);
  let count = f32(u.n);
  var sum = 0.0;
  for (var i = lid; i < u.n; i += WG) { sum += ld0(line + i * u.step) - first; }
  let mean = group_sum(lid, sum) / count;
  sum = 0.0;
  for (var i = lid; i < u.n; i += WG) {
    let far = ld0(line + i * u.step) - first - mean;
    sum += far * far;
  }
  let scale = 1.0 / sqrt(group_sum(lid, sum) / count + u.eps);
  for (var i = lid; i < u.n; i += WG) {
    let at = line + i * u.step;
    st3(at, (ld0(at) - first - mean) * scale * ld1(i) + ld2(i));
  }
}
