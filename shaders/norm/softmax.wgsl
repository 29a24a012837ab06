// exp(x - max) / sum along a line of n elements, `step` apart; one invocation per line.
// One pass finds maximum and sum together, eight elements at a time: when the maximum
// rises, the sum so far is scaled down. The second pass writes.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let line = item / u.inner * u.outer_step + item % u.inner;
  var top = LOWEST;
  var total = 0.0;
  var i = 0u;
  for (; i + 8u <= u.n; i += 8u) {
    let a = four(line + i * u.step);
    let b = four(line + (i + 4u) * u.step);
    let m = max(a, b);
    let high = max(top, max(max(m.x, m.y), max(m.z, m.w)));
    let e = weights(a - high) + weights(b - high);
    total = total * exp(max(top - high, LEAST)) + ((e.x + e.y) + (e.z + e.w));
    top = high;
  }
  for (; i < u.n; i++) {
    let v = ld0(line + i * u.step);
    let high = max(top, v);
    total = total * exp(max(top - high, LEAST)) + weight(v - high);
    top = high;
  }
  let scale = 1.0 / total;
  i = 0u;
  for (; i + 4u <= u.n; i += 4u) {
    let at = line + i * u.step;
    let e = weights(four(at) - top) * scale;
    st1(at, e.x);
    st1(at + u.step, e.y);
    st1(at + 2u * u.step, e.z);
    st1(at + 3u * u.step, e.w);
  }
  for (; i < u.n; i++) {
    let at = line + i * u.step;
    st1(at, weight(ld0(at) - top) * scale);
  }
}

// exp of this is 0 in f32; anything lower might overflow inside a driver's exp.
const LEAST = -104.0;
// A line of -infinity alone has a sum of 0 and becomes NaN; beside a number it is 0.
const LOWEST = -3.4028234e38;

// exp, but a NaN stays one: it makes the sum NaN, and so the line.
fn weight(v: f32) -> f32 {
  return keeps_nan(v, exp(max(v, LEAST)));
}

fn weights(v: vec4<f32>) -> vec4<f32> {
  return vec4<f32>(weight(v.x), weight(v.y), weight(v.z), weight(v.w));
}

fn four(at: u32) -> vec4<f32> {
  return vec4<f32>(ld0(at), ld0(at + u.step), ld0(at + 2u * u.step), ld0(at + 3u * u.step));
}
