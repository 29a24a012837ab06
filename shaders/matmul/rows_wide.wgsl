// rows_single.wgsl for rows of a multiple of four: one load or store for four columns.
fn y_four(matrix: u32, k: u32, n: u32, last: u32) -> V {
  if (k >= last || n >= u.n) { return V(); }
  return ld1((matrix + k * u.y_row + n) / 4u);
}

fn put(matrix: u32, m: u32, n: u32, v: V) {
  if (m >= u.m || n >= u.n) { return; }
  let at = (matrix + m * u.z_row + n) / 4u;
  if (u.at_k > 0u) { st2(at, v + ld2(at)); } else { st2(at, v); }
}
