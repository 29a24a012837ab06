// An integer, or the key of an earlier walk, ranks by itself.
fn key_of(v: u32) -> u32 {
  return v;
}
