// The unknowns of upper triangles [n, width], from the last on, in place of the columns
// on their right; an invocation for every column. Access 0 the matrices.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let base = item / u.j * u.each;
  let j = u.n + item % u.j;
  for (var c = 0u; c < u.column; c++) {
    let at = u.n - 1u - u.at_column - c;
    let here = base + at * u.width + j;
    let v = ld0(here) / ld0(base + at * u.width + at);
    st0(here, v);
    for (var i = 0u; i < at; i++) {
      let above = base + i * u.width;
      st0(above + j, fma(-ld0(above + at), v, ld0(above + j)));
    }
  }
}
