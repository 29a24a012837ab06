// One self-sorting (Stockham) pass of radix RADIX over rows of complex values.
// One output value an invocation; roots of unity come from a host table.
override RADIX: u32 = 2u;
override IN_PARTS: u32 = 3u;
override OUT_PARTS: u32 = 3u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let n = u.cells;
  let row = item / n;
  let cell = item % n;
  let stride = n / RADIX;
  let j = cell % stride;
  let k = cell / stride;
  let m = j % u.done;
  // Between passes and inside the butterfly every factor is a power of one root.
  let turn = m * (n / (u.done * RADIX)) + k * stride;
  let base = row * u.in_pitch;
  var re = 0.0;
  var im = 0.0;
  var at = 0u;
  for (var q = 0u; q < RADIX; q++) {
    let e = base + (j + q * stride) * u.in_step;
    var a = 0.0;
    var b = 0.0;
    if ((IN_PARTS & 1u) != 0u) { a = ld0(e + u.in_re); }
    if ((IN_PARTS & 2u) != 0u) { b = ld0(e + u.in_im); }
    let c = ld1(at);
    let s = ld1(n + at);
    re += a * c - b * s;
    im += a * s + b * c;
    at += turn;
    if (at >= n) { at -= n; }
  }
  let to = (j / u.done) * u.done * RADIX + m + k * u.done;
  if (to >= u.keep) { return; }
  let d = row * u.out_pitch + to * u.out_step;
  if ((OUT_PARTS & 1u) != 0u) { st2(d + u.out_re, re * u.scale); }
  if ((OUT_PARTS & 2u) != 0u) { st2(d + u.out_im, im * u.scale); }
}
