// A block of a product. x, y, z: where the matrices begin. row, column: its corner.
// last: end of its sum.
struct Block { x: u32, y: u32, z: u32, row: u32, column: u32, last: u32 }

// Four rows of x (access 0) at one term; zeros outside.
fn x_four(b: Block, m: u32, k: u32) -> V {
  var v = V();
  if (k >= b.last) { return v; }
  let at = b.x + m * u.x_row + k * u.x_k;
  if (m < u.m) { v.x = ld0(at); }
  if (m + 1u < u.m) { v.y = ld0(at + u.x_row); }
  if (m + 2u < u.m) { v.z = ld0(at + 2u * u.x_row); }
  if (m + 3u < u.m) { v.w = ld0(at + 3u * u.x_row); }
  return v;
}
