// Four columns of a row of y (access 1), zeros outside, and of the output (access 2) of
// a product, element by element. `last` is the end of the sum.
fn y_four(matrix: u32, k: u32, n: u32, last: u32) -> V {
  var v = V();
  if (k >= last) { return v; }
  let at = matrix + k * u.y_row + n * u.y_n;
  if (n < u.n) { v.x = ld1(at); }
  if (n + 1u < u.n) { v.y = ld1(at + u.y_n); }
  if (n + 2u < u.n) { v.z = ld1(at + 2u * u.y_n); }
  if (n + 3u < u.n) { v.w = ld1(at + 3u * u.y_n); }
  return v;
}

// A piece that does not start at the first term carries on from the output.
fn put(matrix: u32, m: u32, n: u32, v: V) {
  if (m >= u.m) { return; }
  let at = matrix + m * u.z_row + n;
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
