// out = x · y for GPUs. A workgroup of exactly 64 invocations computes 32 by 32 from
// slices of 16 terms in workgroup memory; an invocation keeps 4 rows by 4 columns.
// Outside the matrices a slice holds zeros; a store beyond the edge is left out.

var<workgroup> slice_x: array<T, 512>;
var<workgroup> slice_y: array<V, 128>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let tile = tile_of(item, 32u, 32u);
  let row = lid / 8u * 4u;
  let column = lid % 8u;
  var c0 = V();
  var c1 = V();
  var c2 = V();
  var c3 = V();
  for (var k = 0u; k < u.k; k += 16u) {
    for (var i = lid; i < 512u; i += 64u) {
      slice_x[i] = x_at(tile, tile.row + i / 16u, k + i % 16u);
    }
    for (var i = lid; i < 128u; i += 64u) {
      slice_y[i] = y_four(tile.y, k + i / 8u, tile.column + i % 8u * 4u, u.k);
    }
    workgroupBarrier();
    for (var j = 0u; j < 16u; j++) {
      let y = slice_y[j * 8u + column];
      c0 = mul_add(V(slice_x[row * 16u + j]), y, c0);
      c1 = mul_add(V(slice_x[row * 16u + 16u + j]), y, c1);
      c2 = mul_add(V(slice_x[row * 16u + 32u + j]), y, c2);
      c3 = mul_add(V(slice_x[row * 16u + 48u + j]), y, c3);
    }
    workgroupBarrier();
  }
  let at = tile.column + column * 4u;
  put(tile.z, tile.row + row, at, c0);
  put(tile.z, tile.row + row + 1u, at, c1);
  put(tile.z, tile.row + row + 2u, at, c2);
  put(tile.z, tile.row + row + 3u, at, c3);
}

fn x_at(tile: Tile, m: u32, k: u32) -> T {
  if (m >= u.m || k >= u.k) { return T(); }
  return ld0(tile.x + m * u.x_row + k * u.x_k);
}
