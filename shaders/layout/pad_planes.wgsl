// Images [lead, y0, y1, y2] with an array in their middle and one value around it, four
// neighbours a lane. Accesses 0 the array, 1 the images.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let across = (u.y2 + 3u) / 4u;
  let first = item % across * 4u;
  let line = item / across;
  let y1 = line % u.y1;
  let y0 = line / u.y1 % u.y0;
  let lead = line / u.y1 / u.y0;
  // What lies in front of the array is below 0, and so beyond all that is kept of it.
  let i0 = y0 - u.before0;
  let i1 = y1 - u.before1;
  let inside = i0 < u.kept0 && i1 < u.kept1;
  let from_x = lead * u.x_lead + i0 * u.x_0 + i1 * u.x_1;
  let end = min(first + 4u, u.y2);
  for (var y2 = first; y2 < end; y2++) {
    let i2 = y2 - u.before2;
    var v = bitcast<E>(u.bits);
    if (inside && i2 < u.kept2) { v = ld0(from_x + i2); }
    st1(line * u.y2 + y2, v);
  }
}
