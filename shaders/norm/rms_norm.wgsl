// x / sqrt(mean of x² + eps) · gamma + beta along a line; one invocation per line.
// Accesses 0 x, 1 gamma, 2 beta, 3 out.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let line = item / u.inner * u.outer_step + item % u.inner;
  var sum = vec4<f32>();
  var i = 0u;
  for (; i + 4u <= u.n; i += 4u) {
    let v = four(line + i * u.step);
    sum += v * v;
  }
  for (; i < u.n; i++) {
    let v = ld0(line + i * u.step);
    sum.x += v * v;
  }
  let square = ((sum.x + sum.y) + (sum.z + sum.w)) / f32(u.n);
  let scale = 1.0 / sqrt(square + u.eps);
  i = 0u;
  for (; i + 4u <= u.n; i += 4u) {
    let at = line + i * u.step;
    let gamma = vec4<f32>(ld1(i), ld1(i + 1u), ld1(i + 2u), ld1(i + 3u));
    let beta = vec4<f32>(ld2(i), ld2(i + 1u), ld2(i + 2u), ld2(i + 3u));
    let v = four(at) * scale * gamma + beta;
    st3(at, v.x);
    st3(at + u.step, v.y);
    st3(at + 2u * u.step, v.z);
    st3(at + 3u * u.step, v.w);
  }
  for (; i < u.n; i++) {
    let at = line + i * u.step;
    st3(at, ld0(at) * scale * ld1(i) + ld2(i));
  }
}

fn four(at: u32) -> vec4<f32> {
  return vec4<f32>(ld0(at), ld0(at + u.step), ld0(at + 2u * u.step), ld0(at + 3u * u.step));
}
