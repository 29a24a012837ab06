// Complex rows times a complex row: out[k] = in[k] * factor[k] for k < count, else 0.
override IN_PARTS: u32 = 3u;
override OUT_PARTS: u32 = 3u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let row = item / u.cells;
  let k = item % u.cells;
  var re = 0.0;
  var im = 0.0;
  if (k < u.count) {
    let e = row * u.in_pitch + k * u.in_step;
    var a = 0.0;
    var b = 0.0;
    if ((IN_PARTS & 1u) != 0u) { a = ld0(e + u.in_re); }
    if ((IN_PARTS & 2u) != 0u) { b = ld0(e + u.in_im); }
    let c = ld1(k);
    let s = ld1(u.half + k);
    re = (a * c - b * s) * u.scale;
    im = (a * s + b * c) * u.scale;
  }
  let d = row * u.out_pitch + k * u.out_step;
  if ((OUT_PARTS & 1u) != 0u) { st2(d + u.out_re, re); }
  if ((OUT_PARTS & 2u) != 0u) { st2(d + u.out_im, im); }
}
