// out = x · y. One invocation: 8 rows by 4 columns, its sums in registers.
// Beyond the edge a tile computes the last row or column again and stores the same value
// to the same place, so the loop has no branch. A piece that starts inside the sum axis
// carries on from what the piece before stored.

fn load_z(at: vec4<u32>) -> V {
  return V(ld2(at.x), ld2(at.y), ld2(at.z), ld2(at.w));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let tile = tile_of(item, 8u, 4u);
  let last = vec4<u32>(u.n - 1u);
  let n = min(vec4<u32>(tile.column) + vec4<u32>(0u, 1u, 2u, 3u), last);
  let m0 = min(tile.row, u.m - 1u);
  let m1 = min(tile.row + 1u, u.m - 1u);
  let m2 = min(tile.row + 2u, u.m - 1u);
  let m3 = min(tile.row + 3u, u.m - 1u);
  let m4 = min(tile.row + 4u, u.m - 1u);
  let m5 = min(tile.row + 5u, u.m - 1u);
  let m6 = min(tile.row + 6u, u.m - 1u);
  let m7 = min(tile.row + 7u, u.m - 1u);
  var c0 = V();
  var c1 = V();
  var c2 = V();
  var c3 = V();
  var c4 = V();
  var c5 = V();
  var c6 = V();
  var c7 = V();
  if (u.at_k > 0u) {
    c0 = load_z(tile.z + m0 * u.z_row + n);
    c1 = load_z(tile.z + m1 * u.z_row + n);
    c2 = load_z(tile.z + m2 * u.z_row + n);
    c3 = load_z(tile.z + m3 * u.z_row + n);
    c4 = load_z(tile.z + m4 * u.z_row + n);
    c5 = load_z(tile.z + m5 * u.z_row + n);
    c6 = load_z(tile.z + m6 * u.z_row + n);
    c7 = load_z(tile.z + m7 * u.z_row + n);
  }
  let y_n = n * u.y_n;
  for (var k = 0u; k < u.k; k++) {
    let from_x = tile.x + k * u.x_k;
    let from_y = tile.y + k * u.y_row;
    let y = load_y(from_y + y_n);
    c0 = mul_add(V(ld0(from_x + m0 * u.x_row)), y, c0);
    c1 = mul_add(V(ld0(from_x + m1 * u.x_row)), y, c1);
    c2 = mul_add(V(ld0(from_x + m2 * u.x_row)), y, c2);
    c3 = mul_add(V(ld0(from_x + m3 * u.x_row)), y, c3);
    c4 = mul_add(V(ld0(from_x + m4 * u.x_row)), y, c4);
    c5 = mul_add(V(ld0(from_x + m5 * u.x_row)), y, c5);
    c6 = mul_add(V(ld0(from_x + m6 * u.x_row)), y, c6);
    c7 = mul_add(V(ld0(from_x + m7 * u.x_row)), y, c7);
  }
  store_z(tile.z + m0 * u.z_row + n, c0);
  store_z(tile.z + m1 * u.z_row + n, c1);
  store_z(tile.z + m2 * u.z_row + n, c2);
  store_z(tile.z + m3 * u.z_row + n, c3);
  store_z(tile.z + m4 * u.z_row + n, c4);
  store_z(tile.z + m5 * u.z_row + n, c5);
  store_z(tile.z + m6 * u.z_row + n, c6);
  store_z(tile.z + m7 * u.z_row + n, c7);
  finish_tile(tile, 8u, 4u);
}
