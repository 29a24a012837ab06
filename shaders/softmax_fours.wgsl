// exp(x - max) / sum along a dense line, four elements to an access; one invocation per
// line. The arithmetic is that of softmax.wgsl, in its order.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let fours = u.n / 4u;
  let line = item * fours;
  var top = LOWEST;
  var total = 0.0;
  var i = 0u;
  for (; i + 2u <= fours; i += 2u) {
    let a = ld0(line + i);
    let b = ld0(line + i + 1u);
    let m = max(a, b);
    let high = max(top, max(max(m.x, m.y), max(m.z, m.w)));
    let e = weights(a - high) + weights(b - high);
    total = total * exp(max(top - high, LEAST)) + ((e.x + e.y) + (e.z + e.w));
    top = high;
  }
  if (i < fours) {
    let a = ld0(line + i);
    let high = max(top, max(max(a.x, a.y), max(a.z, a.w)));
    let e = weights(a - high);
    total = total * exp(max(top - high, LEAST)) + ((e.x + e.y) + (e.z + e.w));
    top = high;
  }
  let scale = 1.0 / total;
  for (i = 0u; i < fours; i++) {
    st1(line + i, weights(ld0(line + i) - top) * scale);
  }
}

// exp of this is 0 in f32; anything lower might overflow inside a driver's exp.
const LEAST = -104.0;
// A line of -infinity alone has a sum of 0 and becomes NaN; beside a number it is 0.
const LOWEST = -3.4028234e38;

// exp, but a NaN stays one: it makes the sum NaN, and so the line.
fn weights(v: vec4<f32>) -> vec4<f32> {
  return keeps_nan(v, exp(max(v, vec4<f32>(LEAST))));
}
