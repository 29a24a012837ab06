// out = x · y for very few rows. One invocation: 1 row by 4 columns.
// Edges and pieces of the sum axis as in matmul.wgsl.

fn load_z(at: vec4<u32>) -> V {
  return V(ld2(at.x), ld2(at.y), ld2(at.z), ld2(at.w));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let tile = tile_of(item, 1u, 4u);
  let last = vec4<u32>(u.n - 1u);
  let n = min(vec4<u32>(tile.column) + vec4<u32>(0u, 1u, 2u, 3u), last);
  let m0 = min(tile.row, u.m - 1u);
  var c0 = V();
  if (u.at_k > 0u) {
    c0 = load_z(tile.z + m0 * u.z_row + n);
  }
  let y_n = n * u.y_n;
  for (var k = 0u; k < u.k; k++) {
    let from_x = tile.x + k * u.x_k;
    let from_y = tile.y + k * u.y_row;
    let y = load_y(from_y + y_n);
    c0 = mul_add(V(ld0(from_x + m0 * u.x_row)), y, c0);
  }
  store_z(tile.z + m0 * u.z_row + n, c0);
  finish_tile(tile, 1u, 4u);
}
