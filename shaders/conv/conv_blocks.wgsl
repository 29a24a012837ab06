// The right operand of a convolution by blocks: the array under tap k of four windows,
// zeros outside. Windows are numbered through the images of a call and the places on
// each. Accesses 1 the array, 2 out, 3 where each tap lies.
const OUTSIDE = 0xffffffffu;

fn window_at(n: u32) -> u32 {
  if (n >= u.n) { return OUTSIDE; }
  let p = n % u.places;
  let line = p / u.o2;
  let at = line / u.o1 * u.s0 + line % u.o1 * u.s1 + p % u.o2 * u.s2;
  return n / u.places * u.y_image + at;
}

fn windows_at(n: u32) -> vec4<u32> {
  return vec4<u32>(
    window_at(n), window_at(n + 1u), window_at(n + 2u), window_at(n + 3u)
  );
}

fn y_four(matrix: u32, k: u32, windows: vec4<u32>, last: u32) -> V {
  var v = V();
  if (k >= last) { return v; }
  let tap = matrix + u32(ld3(k));
  if (windows.x != OUTSIDE) { v.x = ld1(tap + windows.x); }
  if (windows.y != OUTSIDE) { v.y = ld1(tap + windows.y); }
  if (windows.z != OUTSIDE) { v.z = ld1(tap + windows.z); }
  if (windows.w != OUTSIDE) { v.w = ld1(tap + windows.w); }
  return v;
}

fn put(matrix: u32, m: u32, n: u32, v: V) {
  if (m >= u.m) { return; }
  let row = matrix + m * u.z_row;
  put_one(row, n, v.x);
  put_one(row, n + 1u, v.y);
  put_one(row, n + 2u, v.z);
  put_one(row, n + 3u, v.w);
}

fn put_one(row: u32, n: u32, v: T) {
  if (n < u.n) { st2(row + n / u.places * u.z_image + n % u.places, v); }
}
