// The sum of two lines and its norm, a workgroup for every line.
// Accesses 0 x, 1 residual, 2 gamma, 3 beta, 4 out: the norms, and `part` further on
// the sums.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let line = item * u.n;
  let count = f32(u.n);
  var first = 0.0;
  var mean = 0.0;
  var sum = 0.0;
  if (u.centred == 1u) {
    first = ld0(line) + ld1(line);
    for (var i = lid; i < u.n; i += WG) { sum += ld0(line + i) + ld1(line + i) - first; }
    mean = group_sum(lid, sum) / count;
    sum = 0.0;
  }
  for (var i = lid; i < u.n; i += WG) {
    let v = ld0(line + i) + ld1(line + i);
    st4(u.part_step + line + i, v);
    let far = v - first - mean;
    sum += far * far;
  }
  let scale = 1.0 / sqrt(group_sum(lid, sum) / count + u.eps);
  for (var i = lid; i < u.n; i += WG) {
    let v = ld0(line + i) + ld1(line + i);
    st4(line + i, (v - first - mean) * scale * ld2(i) + ld3(i));
  }
}
