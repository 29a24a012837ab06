// Every row times the matrix of its group; an invocation makes four columns of a row.
// Accesses 0 x, 1 w, 2 groups, 3 out. A row that names no group is zeros.
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>,
        @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let quads = (u.n + 3u) / 4u;
  let row = item / quads;
  let column = item % quads * 4u;
  let count = min(4u, u.n - column);
  let group = u32(ld2(row));
  var sum = vec4<f32>();
  if (group < u.g) {
    let matrix = group * u.each + column;
    if (count == 4u) {
      for (var k = 0u; k < u.k; k++) {
        let at = matrix + k * u.line;
        sum = fma(vec4<f32>(ld0(row * u.k + k)), vec4<f32>(ld1(at), ld1(at + 1u), ld1(at + 2u), ld1(at + 3u)), sum);
      }
    } else {
      for (var k = 0u; k < u.k; k++) {
        let at = matrix + k * u.line;
        let v = ld0(row * u.k + k);
        for (var c = 0u; c < count; c++) { sum[c] += v * ld1(at + c); }
      }
    }
  }
  for (var c = 0u; c < count; c++) { st3(row * u.line + column + c, sum[c]); }
}
