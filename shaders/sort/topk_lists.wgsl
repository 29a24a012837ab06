// The candidates of a topk workgroup are the lists of an earlier walk (access 3).
fn place_of(at: u32, position: u32) -> u32 {
  return bitcast<u32>(ld3(at));
}
