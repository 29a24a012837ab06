// The right operand of a convolution by blocks: the array under tap k of the windows at
// four positions, zeros outside. Accesses 1 the array, 2 out, 3 where each tap lies.
fn window_at(p: u32) -> u32 {
  let line = p / u.o2;
  return line / u.o1 * u.s0 + line % u.o1 * u.s1 + p % u.o2 * u.s2;
}

fn y_four(matrix: u32, k: u32, n: u32, last: u32) -> V {
  var v = V();
  if (k >= last) { return v; }
  let tap = matrix + u32(ld3(k));
  if (n < u.n) { v.x = ld1(tap + window_at(n)); }
  if (n + 1u < u.n) { v.y = ld1(tap + window_at(n + 1u)); }
  if (n + 2u < u.n) { v.z = ld1(tap + window_at(n + 2u)); }
  if (n + 3u < u.n) { v.w = ld1(tap + window_at(n + 3u)); }
  return v;
}

fn put(matrix: u32, m: u32, n: u32, v: V) {
  if (m >= u.m) { return; }
  let at = matrix + m * u.z_row + n;
  if (n < u.n) { st2(at, v.x); }
  if (n + 1u < u.n) { st2(at + 1u, v.y); }
  if (n + 2u < u.n) { st2(at + 2u, v.z); }
  if (n + 3u < u.n) { st2(at + 3u, v.w); }
}
