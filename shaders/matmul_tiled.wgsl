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
      slice_y[i] = y_at(tile, k + i / 8u, tile.column + i % 8u * 4u);
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
  put(tile, tile.row + row, at, c0);
  put(tile, tile.row + row + 1u, at, c1);
  put(tile, tile.row + row + 2u, at, c2);
  put(tile, tile.row + row + 3u, at, c3);
}

fn x_at(tile: Tile, m: u32, k: u32) -> T {
  if (m >= u.m || k >= u.k) { return T(); }
  return ld0(tile.x + m * u.x_row + k);
}

fn y_at(tile: Tile, k: u32, n: u32) -> V {
  var v = V();
  if (k >= u.k) { return v; }
  let at = tile.y + k * u.y_row + n;
  if (n < u.n) { v.x = ld1(at); }
  if (n + 1u < u.n) { v.y = ld1(at + 1u); }
  if (n + 2u < u.n) { v.z = ld1(at + 2u); }
  if (n + 3u < u.n) { v.w = ld1(at + 3u); }
  return v;
}

fn put(tile: Tile, m: u32, n: u32, v: V) {
  if (m >= u.m) { return; }
  let at = tile.z + m * u.z_row + n;
  let carried = u.at_k > 0u;
  if (n < u.n) { st2(at, v.x + before(at, carried)); }
  if (n + 1u < u.n) { st2(at + 1u, v.y + before(at + 1u, carried)); }
  if (n + 2u < u.n) { st2(at + 2u, v.z + before(at + 2u, carried)); }
  if (n + 3u < u.n) { st2(at + 3u, v.w + before(at + 3u, carried)); }
}

fn before(at: u32, carried: bool) -> T {
  if (carried) { return ld2(at); }
  return T();
}
