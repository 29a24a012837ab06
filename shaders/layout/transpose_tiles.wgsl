// A copy whose neighbours in the output (axis `n`) are far apart in the input, and the
// other way round (axis `m`). A workgroup reads 32 by 32 along the input's rows and
// writes along the output's; a row of 33 cells keeps both ways free of bank conflicts.
var<workgroup> tile: array<S, 1056>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let across = (u.n + 31u) / 32u;
  let down = (u.m + 31u) / 32u;
  let n0 = item % across * 32u;
  var rest = item / across;
  let m0 = rest % down * 32u;
  rest = rest / down;
  let i1 = rest % u.b1;
  let i0 = rest / u.b1;
  let origin = i0 * u.x_b0 + i1 * u.x_b1;
  let target_at = i0 * u.y_b0 + i1 * u.y_b1;
  let column = lid % 32u;
  for (var row = lid / 32u; row < 32u; row += WG / 32u) {
    if (n0 + row < u.n && m0 + column < u.m) {
      tile[row * 33u + column] = ld0(origin + (n0 + row) * u.x_n + m0 + column);
    }
  }
  workgroupBarrier();
  for (var row = lid / 32u; row < 32u; row += WG / 32u) {
    if (m0 + row < u.m && n0 + column < u.n) {
      st1(target_at + (m0 + row) * u.y_m + n0 + column, tile[column * 33u + row]);
    }
  }
}
