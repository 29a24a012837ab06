// The candidates of a topk walk are the elements of a row themselves.
fn candidate(at: u32, row: u32, chunk: u32, j: u32) -> i32 {
  return i32(u.start + (u.at_chunk + chunk) * u.x_chunk + u.at_n + j);
}
