// (x - mean) / sqrt(variance + eps) · gamma + beta along a line; one invocation per line.
// Accesses 0 x, 1 gamma, 2 beta, 3 out. Everything is measured from the line's first
// element, and the variance around the mean, so values far from zero lose nothing.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let line = item / u.inner * u.outer_step + item % u.inner;
  let first = ld0(line);
  let count = f32(u.n);
  var sum = vec4<f32>();
  var i = 0u;
  for (; i + 4u <= u.n; i += 4u) { sum += four(line + i * u.step) - first; }
  for (; i < u.n; i++) { sum.x += ld0(line + i * u.step) - first; }
  let mean = ((sum.x + sum.y) + (sum.z + sum.w)) / count;
  sum = vec4<f32>();
  i = 0u;
  for (; i + 4u <= u.n; i += 4u) {
    let far = four(line + i * u.step) - first - mean;
    sum += far * far;
  }
  for (; i < u.n; i++) {
    let far = ld0(line + i * u.step) - first - mean;
    sum.x += far * far;
  }
  let variance = ((sum.x + sum.y) + (sum.z + sum.w)) / count;
  let scale = 1.0 / sqrt(variance + u.eps);
  i = 0u;
  for (; i + 4u <= u.n; i += 4u) {
    let at = line + i * u.step;
    let gamma = vec4<f32>(ld1(i), ld1(i + 1u), ld1(i + 2u), ld1(i + 3u));
    let beta = vec4<f32>(ld2(i), ld2(i + 1u), ld2(i + 2u), ld2(i + 3u));
    let v = (four(at) - first - mean) * scale * gamma + beta;
    st3(at, v.x);
    st3(at + u.step, v.y);
    st3(at + 2u * u.step, v.z);
    st3(at + 3u * u.step, v.w);
  }
  for (; i < u.n; i++) {
    let at = line + i * u.step;
    st3(at, (ld0(at) - first - mean) * scale * ld1(i) + ld2(i));
  }
}

fn four(at: u32) -> vec4<f32> {
  return vec4<f32>(ld0(at), ld0(at + u.step), ld0(at + 2u * u.step), ld0(at + 3u * u.step));
}
