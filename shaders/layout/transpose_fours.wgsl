// transpose_tiles.wgsl for adapters on the CPU, four by four in registers: both sides are
// touched four neighbours at a time. Strides count fours; m and n are multiples of four.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let across = u.n / 4u;
  let down = u.m / 4u;
  let n = item % across;
  var rest = item / across;
  let m = rest % down;
  rest = rest / down;
  let i1 = rest % u.b1;
  let i0 = rest / u.b1;
  let origin = i0 * u.x_b0 + i1 * u.x_b1 + 4u * n * u.x_n + m;
  let target_at = i0 * u.y_b0 + i1 * u.y_b1 + 4u * m * u.y_m + n;
  let a = ld0(origin);
  let b = ld0(origin + u.x_n);
  let c = ld0(origin + 2u * u.x_n);
  let d = ld0(origin + 3u * u.x_n);
  st1(target_at, V(a.x, b.x, c.x, d.x));
  st1(target_at + u.y_m, V(a.y, b.y, c.y, d.y));
  st1(target_at + 2u * u.y_m, V(a.z, b.z, c.z, d.z));
  st1(target_at + 3u * u.y_m, V(a.w, b.w, c.w, d.w));
}
