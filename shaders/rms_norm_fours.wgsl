// x / sqrt(mean of x² + eps) · gamma + beta along a dense line, four elements to an
// access; one invocation per line. Accesses 0 x, 1 gamma, 2 beta, 3 out. The arithmetic
// is that of rms_norm.wgsl, in its order.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let fours = u.n / 4u;
  let line = item * fours;
  var sum = vec4<f32>();
  for (var i = 0u; i < fours; i++) {
    let v = ld0(line + i);
    sum += v * v;
  }
  let square = ((sum.x + sum.y) + (sum.z + sum.w)) / f32(u.n);
  let scale = 1.0 / sqrt(square + u.eps);
  for (var i = 0u; i < fours; i++) {
    st3(line + i, ld0(line + i) * scale * ld1(i) + ld2(i));
  }
}
