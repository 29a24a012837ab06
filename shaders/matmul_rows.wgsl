// out = x · y for adapters that run on the CPU, which pay per load and not per sum: one
// invocation computes 16 rows by 16 columns with 32 loads for 256 products. No shared
// memory, no barrier. Edges as in matmul.wgsl; the sum axis comes whole.

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let item = item_of(wid, nwg, lid);
  if (item >= u.items) { return; }
  let tile = tile_of(item, 16u, 16u);
  let last = vec4<u32>(u.n - 1u);
  let na = min(vec4<u32>(tile.column) + vec4<u32>(0u, 1u, 2u, 3u), last);
  let nb = min(vec4<u32>(tile.column) + vec4<u32>(4u, 5u, 6u, 7u), last);
  let nc = min(vec4<u32>(tile.column) + vec4<u32>(8u, 9u, 10u, 11u), last);
  let nd = min(vec4<u32>(tile.column) + vec4<u32>(12u, 13u, 14u, 15u), last);
  let m0 = min(tile.row, u.m - 1u);
  let m1 = min(tile.row + 1u, u.m - 1u);
  let m2 = min(tile.row + 2u, u.m - 1u);
  let m3 = min(tile.row + 3u, u.m - 1u);
  let m4 = min(tile.row + 4u, u.m - 1u);
  let m5 = min(tile.row + 5u, u.m - 1u);
  let m6 = min(tile.row + 6u, u.m - 1u);
  let m7 = min(tile.row + 7u, u.m - 1u);
  let m8 = min(tile.row + 8u, u.m - 1u);
  let m9 = min(tile.row + 9u, u.m - 1u);
  let m10 = min(tile.row + 10u, u.m - 1u);
  let m11 = min(tile.row + 11u, u.m - 1u);
  let m12 = min(tile.row + 12u, u.m - 1u);
  let m13 = min(tile.row + 13u, u.m - 1u);
  let m14 = min(tile.row + 14u, u.m - 1u);
  let m15 = min(tile.row + 15u, u.m - 1u);
  var a0 = V(); var b0 = V(); var c0 = V(); var d0 = V();
  var a1 = V(); var b1 = V(); var c1 = V(); var d1 = V();
  var a2 = V(); var b2 = V(); var c2 = V(); var d2 = V();
  var a3 = V(); var b3 = V(); var c3 = V(); var d3 = V();
  var a4 = V(); var b4 = V(); var c4 = V(); var d4 = V();
  var a5 = V(); var b5 = V(); var c5 = V(); var d5 = V();
  var a6 = V(); var b6 = V(); var c6 = V(); var d6 = V();
  var a7 = V(); var b7 = V(); var c7 = V(); var d7 = V();
  var a8 = V(); var b8 = V(); var c8 = V(); var d8 = V();
  var a9 = V(); var b9 = V(); var c9 = V(); var d9 = V();
  var a10 = V(); var b10 = V(); var c10 = V(); var d10 = V();
  var a11 = V(); var b11 = V(); var c11 = V(); var d11 = V();
  var a12 = V(); var b12 = V(); var c12 = V(); var d12 = V();
  var a13 = V(); var b13 = V(); var c13 = V(); var d13 = V();
  var a14 = V(); var b14 = V(); var c14 = V(); var d14 = V();
  var a15 = V(); var b15 = V(); var c15 = V(); var d15 = V();
  let y_na = na * u.y_n;
  let y_nb = nb * u.y_n;
  let y_nc = nc * u.y_n;
  let y_nd = nd * u.y_n;
  for (var k = 0u; k < u.k; k++) {
    let from_x = tile.x + k * u.x_k;
    let from_y = tile.y + k * u.y_row;
    let ya = load_y(from_y + y_na);
    let yb = load_y(from_y + y_nb);
    let yc = load_y(from_y + y_nc);
    let yd = load_y(from_y + y_nd);
    let x0 = V(ld0(from_x + m0 * u.x_row));
    a0 = mul_add(x0, ya, a0); b0 = mul_add(x0, yb, b0);
    c0 = mul_add(x0, yc, c0); d0 = mul_add(x0, yd, d0);
    let x1 = V(ld0(from_x + m1 * u.x_row));
    a1 = mul_add(x1, ya, a1); b1 = mul_add(x1, yb, b1);
    c1 = mul_add(x1, yc, c1); d1 = mul_add(x1, yd, d1);
    let x2 = V(ld0(from_x + m2 * u.x_row));
    a2 = mul_add(x2, ya, a2); b2 = mul_add(x2, yb, b2);
    c2 = mul_add(x2, yc, c2); d2 = mul_add(x2, yd, d2);
    let x3 = V(ld0(from_x + m3 * u.x_row));
    a3 = mul_add(x3, ya, a3); b3 = mul_add(x3, yb, b3);
    c3 = mul_add(x3, yc, c3); d3 = mul_add(x3, yd, d3);
    let x4 = V(ld0(from_x + m4 * u.x_row));
    a4 = mul_add(x4, ya, a4); b4 = mul_add(x4, yb, b4);
    c4 = mul_add(x4, yc, c4); d4 = mul_add(x4, yd, d4);
    let x5 = V(ld0(from_x + m5 * u.x_row));
    a5 = mul_add(x5, ya, a5); b5 = mul_add(x5, yb, b5);
    c5 = mul_add(x5, yc, c5); d5 = mul_add(x5, yd, d5);
    let x6 = V(ld0(from_x + m6 * u.x_row));
    a6 = mul_add(x6, ya, a6); b6 = mul_add(x6, yb, b6);
    c6 = mul_add(x6, yc, c6); d6 = mul_add(x6, yd, d6);
    let x7 = V(ld0(from_x + m7 * u.x_row));
    a7 = mul_add(x7, ya, a7); b7 = mul_add(x7, yb, b7);
    c7 = mul_add(x7, yc, c7); d7 = mul_add(x7, yd, d7);
    let x8 = V(ld0(from_x + m8 * u.x_row));
    a8 = mul_add(x8, ya, a8); b8 = mul_add(x8, yb, b8);
    c8 = mul_add(x8, yc, c8); d8 = mul_add(x8, yd, d8);
    let x9 = V(ld0(from_x + m9 * u.x_row));
    a9 = mul_add(x9, ya, a9); b9 = mul_add(x9, yb, b9);
    c9 = mul_add(x9, yc, c9); d9 = mul_add(x9, yd, d9);
    let x10 = V(ld0(from_x + m10 * u.x_row));
    a10 = mul_add(x10, ya, a10); b10 = mul_add(x10, yb, b10);
    c10 = mul_add(x10, yc, c10); d10 = mul_add(x10, yd, d10);
    let x11 = V(ld0(from_x + m11 * u.x_row));
    a11 = mul_add(x11, ya, a11); b11 = mul_add(x11, yb, b11);
    c11 = mul_add(x11, yc, c11); d11 = mul_add(x11, yd, d11);
    let x12 = V(ld0(from_x + m12 * u.x_row));
    a12 = mul_add(x12, ya, a12); b12 = mul_add(x12, yb, b12);
    c12 = mul_add(x12, yc, c12); d12 = mul_add(x12, yd, d12);
    let x13 = V(ld0(from_x + m13 * u.x_row));
    a13 = mul_add(x13, ya, a13); b13 = mul_add(x13, yb, b13);
    c13 = mul_add(x13, yc, c13); d13 = mul_add(x13, yd, d13);
    let x14 = V(ld0(from_x + m14 * u.x_row));
    a14 = mul_add(x14, ya, a14); b14 = mul_add(x14, yb, b14);
    c14 = mul_add(x14, yc, c14); d14 = mul_add(x14, yd, d14);
    let x15 = V(ld0(from_x + m15 * u.x_row));
    a15 = mul_add(x15, ya, a15); b15 = mul_add(x15, yb, b15);
    c15 = mul_add(x15, yc, c15); d15 = mul_add(x15, yd, d15);
  }
  let rows = min(16u, u.m - tile.row);
  for (var r = 0u; r < rows; r += 1u) {
    let z0 = tile.z + (tile.row + r) * u.z_row;
    store_z(z0 + na, a0); store_z(z0 + nb, b0);
    store_z(z0 + nc, c0); store_z(z0 + nd, d0);
    a0 = a1; b0 = b1; c0 = c1; d0 = d1;
    a1 = a2; b1 = b2; c1 = c2; d1 = d2;
    a2 = a3; b2 = b3; c2 = c3; d2 = d3;
    a3 = a4; b3 = b4; c3 = c4; d3 = d4;
    a4 = a5; b4 = b5; c4 = c5; d4 = d5;
    a5 = a6; b5 = b6; c5 = c6; d5 = d6;
    a6 = a7; b6 = b7; c6 = c7; d6 = d7;
    a7 = a8; b7 = b8; c7 = c8; d7 = d8;
    a8 = a9; b8 = b9; c8 = c9; d8 = d9;
    a9 = a10; b9 = b10; c9 = c10; d9 = d10;
    a10 = a11; b10 = b11; c10 = c11; d10 = d11;
    a11 = a12; b11 = b12; c11 = c12; d11 = d12;
    a12 = a13; b12 = b13; c12 = c13; d12 = d13;
    a13 = a14; b13 = b14; c13 = c14; d13 = d14;
    a14 = a15; b14 = b15; c14 = c15; d14 = d15;
  }
  finish_tile(tile, 16u, 16u);
}
