// The candidates of a topk walk are the lists of an earlier walk.
fn candidate(at: u32, row: u32, chunk: u32, j: u32) -> i32 {
  return ld3(at);
}
