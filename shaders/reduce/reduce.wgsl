// Reduces up to four groups of axes, keeping up to five, over any strides.
//
// One invocation per output walks its elements in blocks of BLOCK, so that a float sum
// of n elements carries the rounding of BLOCK + n / BLOCK additions, not of n. A piece
// that does not start at the first element carries on from the output.
override BLOCK: u32 = 64u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  var rest = item;
  let i4 = rest % u.p4; rest = rest / u.p4;
  let i3 = rest % u.p3; rest = rest / u.p3;
  let i2 = rest % u.p2; rest = rest / u.p2;
  let i1 = rest % u.p1;
  let i0 = rest / u.p1;
  let origin = i0 * u.x_p0 + i1 * u.x_p1 + i2 * u.x_p2 + i3 * u.x_p3 + i4 * u.x_p4;
  let place = i0 * u.y_p0 + i1 * u.y_p1 + i2 * u.y_p2 + i3 * u.y_p3 + i4 * u.y_p4;
  let begins = (u.at_r0 | u.at_r1 | u.at_r2 | u.at_r3 | u.carry) == 0u;

  var total = E(0);
  if (!begins) { total = ld1(place); }
  var fresh = begins;
  for (var j0 = 0u; j0 < u.r0; j0 += 1u) {
    for (var j1 = 0u; j1 < u.r1; j1 += 1u) {
      for (var j2 = 0u; j2 < u.r2; j2 += 1u) {
        let row = origin + j0 * u.x_r0 + j1 * u.x_r1 + j2 * u.x_r2;
        for (var head = 0u; head < u.r3; head += BLOCK) {
          let end = min(head + BLOCK, u.r3);
          var part = ld0(row + head * u.x_r3);
          for (var j = head + 1u; j < end; j += 1u) {
            part = combined(part, ld0(row + j * u.x_r3));
          }
          if (fresh) { total = part; } else { total = combined(total, part); }
          fresh = false;
        }
      }
    }
  }
  st1(place, total);
}
