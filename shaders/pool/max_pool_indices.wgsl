// Where the largest element of each window stands in its image. Accesses 0 x in its
// padding, 1 what it is, 2 where; a later piece of a window carries on from both.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let i2 = item % u.o2;
  var rest = item / u.o2;
  let i1 = rest % u.o1; rest = rest / u.o1;
  let i0 = rest % u.o0;
  let lead = rest / u.o0;
  let origin = lead * u.x_lead + i0 * u.x_o0 + i1 * u.x_o1 + i2 * u.x_o2;
  let place = lead * u.z_lead + i0 * u.z_o0 + i1 * u.z_o1 + i2 * u.z_o2;
  let start0 = (u.at_o0 + i0) * u.stride0;
  let start1 = (u.at_o1 + i1) * u.stride1;
  let start2 = (u.at_o2 + i2) * u.stride2;

  var fresh = (u.at_k0 | u.at_k1 | u.at_k2) == 0u;
  var best = E(0);
  var found = 0u;
  if (!fresh) {
    best = ld1(place);
    let before = ld2(place);
    fresh = before < 0;
    found = u32(max(before, 0));
  }
  for (var k0 = 0u; k0 < u.k0; k0++) {
    let y0 = start0 + (u.at_k0 + k0) * u.dilation0;
    for (var k1 = 0u; k1 < u.k1; k1++) {
      let y1 = start1 + (u.at_k1 + k1) * u.dilation1;
      for (var k2 = 0u; k2 < u.k2; k2++) {
        let y2 = start2 + (u.at_k2 + k2) * u.dilation2;
        let inside = y0 >= u.before0 && y0 < u.before0 + u.size0
          && y1 >= u.before1 && y1 < u.before1 + u.size1
          && y2 >= u.before2 && y2 < u.before2 + u.size2;
        let v = ld0(origin + k0 * u.x_k0 + k1 * u.x_k1 + k2 * u.x_k2);
        if (inside && (fresh || overtakes(v, best))) {
          best = v;
          found = ((y0 - u.before0) * u.size1 + y1 - u.before1) * u.size2 + y2 - u.before2;
          fresh = false;
        }
      }
    }
  }
  st1(place, best);
  // Nothing of the window was inside the array so far.
  st2(place, select(i32(found), -1, fresh));
}
